"""The same trained model on the CPU and on CUDA: how far logits differ, and at how many steps the answers do.

    python benchmarks/device_agreement.py DATASET MODEL [--trips 1000] [--keep 1/8]

Products are in full precision on both (TF32 off). Logits are compared on the same fed positions, those that the CPU
decodes; answers are compared as each device gives them, where one other choice changes all steps behind it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.stepwise import StepwiseMethod
from tedtrajrec.nn.decoder import Fed


@torch.no_grad()
def logits_of(method: StepwiseMethod, inputs: Inputs, fed: Fed) -> torch.Tensor:  # type: ignore[type-arg]
    """Return the logits [B, n, S] of steps that are fed these positions."""
    device = method.device
    inputs, fed = inputs.to(device), Fed(*(part.to(device) for part in fed))
    roads = method.roads()
    encoded = method.encode(inputs, roads)
    state = method.decoder.states(encoded, roads, inputs.step_minute, fed)
    return method.constraint(inputs).add_to(method.decoder.score(state)).cpu()


def main() -> None:
    """Compare and print one row of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("model")
    parser.add_argument("--trips", type=int, default=1000)
    parser.add_argument("--keep", default="1/8")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    dataset = Dataset(arguments.dataset)
    here, there = (load_method(arguments.model, dataset.network) for _ in range(2))
    if not (isinstance(here, StepwiseMethod) and isinstance(there, StepwiseMethod)):
        raise SystemExit(f"{arguments.model} has no weights")
    here, there = here.eval(), there.to("cuda").eval()
    same = steps = 0
    worst = 0.0
    split = dataset.split("test")
    for first in range(0, min(arguments.trips, len(split)), 100):
        trips = split.trips(np.arange(first, min(first + 100, len(split))))
        info = dataset.info
        observed = draw_observed(trips, arguments.keep)
        batch = make_batch(trips, observed, dataset.network, step_s=info.step_s, time_zone=info.time_zone)
        on_cpu, on_cuda = here.recover(batch), there.recover(batch)
        mask = batch.step_mask
        same += int((on_cpu.segment == on_cuda.segment.cpu())[mask].sum())
        steps += int(mask.sum())
        inputs = here.inputs(batch)
        fed = Fed(on_cpu.segment, on_cpu.ratio, torch.ones_like(mask))
        a, b = logits_of(here, inputs, fed)[mask], logits_of(there, inputs, fed)[mask]
        worst = max(worst, float(((a - b).abs().amax(-1) / a.abs().amax(-1)).max()))
    row = {"steps": steps, "same_segment": same / steps, "worst_relative_logit": worst, **machine()}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
