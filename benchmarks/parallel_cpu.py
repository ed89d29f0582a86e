"""What tedtrajrec_parallel saves on processors by work on what exists and is touched, beside work of fixed shapes.

    python benchmarks/parallel_cpu.py DATASET [--most 48] [--batches 6] [-o rows.jsonl]

Where work is recorded in graphs its shapes are fixed: all places of all lists are scored, and networks of up to 30,000
segments are taken as a whole. Processors score candidates that exist and take the part of the network that a batch
touches. Both forms make the same training steps in turn, on the same batches, and recover the same test trips; the
ratio is the median over batches. d 256, batches of 64, keep 1/8, one thread of torch unless OMP_NUM_THREADS says more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods import parallel_inputs
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.nn import kernels
from tedtrajrec.training.batches import epoch_order, training_batch
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE
from tedtrajrec.training.loop import Trainer


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Work as devices do that record it."""
    with (
        mock.patch.object(kernels, "RECORDED", {"cpu", "cuda"}),
        mock.patch.object(parallel_inputs, "LARGE_CPU", sys.maxsize),
    ):
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    """Work as processors do."""
    yield


FORMS = {"fixed_s": fixed_shapes, "processor_s": as_it_is}


def steps_of_training(method: TedTrajRecParallel, dataset: Dataset, batches: int) -> Iterator[dict[str, float]]:
    """Yield the seconds of a training step in each form, inputs included, for some batches of an epoch."""
    config, split = TrainConfig(batch=64), dataset.split("train")
    order = epoch_order(split.lengths, config.batch, 0, 0)
    trainer, progress = Trainer(method.train(), config, len(order)), Progress()
    for k in range(-1, min(batches, len(order))):  # the first one, twice: it compiles
        batch, forced = training_batch(dataset, split, order[max(k, 0)], config, 0, ALONE)
        row = {}
        for name, form in FORMS.items():
            with form():
                began = time.perf_counter()
                trainer(method.inputs(batch, forced), progress)
                row[name] = time.perf_counter() - began
        if k >= 0:
            yield {**row, "trips": len(batch)}


def recoveries(method: TedTrajRecParallel, dataset: Dataset, batches: int) -> Iterator[dict[str, float]]:
    """Yield the seconds of recovering 64 test trips in each form."""
    method.eval()
    split, info = dataset.split("test"), dataset.info
    for k in range(-1, batches):
        trips = split.trips((64 * max(k, 0) + np.arange(64)) % len(split))
        observed = draw_observed(trips, "1/8", seed=0)
        batch = make_batch(trips, observed, dataset.network, step_s=info.step_s, time_zone=info.time_zone)
        row = {}
        for name, form in FORMS.items():
            with form():
                began = time.perf_counter()
                method.recover(batch)
                row[name] = time.perf_counter() - began
        if k >= 0:
            yield {**row, "trips": len(batch)}


def main() -> None:
    """Print a row of JSON for training and one for recovery."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--most", type=int, default=48, help="candidates of a step")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("-o", "--output", type=Path, help="rows are added to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dataset = Dataset(arguments.dataset)
    torch.manual_seed(0)
    method = TedTrajRecParallel(dataset.network, ParallelConfig(most=arguments.most))
    method.precompute(dataset)
    for what, work in (("train", steps_of_training), ("recover", recoveries)):
        rows = list(work(method, dataset, arguments.batches))
        found = {"what": what, "dataset": arguments.dataset.name, "segments": dataset.network.n_segments}
        found |= {"most": arguments.most, "batches": len(rows), "threads": torch.get_num_threads()}
        found |= {name: sum(row[name] for row in rows) / sum(row["trips"] for row in rows) for name in FORMS}
        found["ratio"] = statistics.median(row["fixed_s"] / row["processor_s"] for row in rows)
        line = json.dumps(found | machine())
        print(line, flush=True)
        if arguments.output is not None:
            with arguments.output.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
