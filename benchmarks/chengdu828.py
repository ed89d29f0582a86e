"""Methods on the 828 Chengdu trips and fixed draws that the figures of other tools were taken on.

    python benchmarks/chengdu828.py DATASET linear_hmm route_hmm lookup [--set KEY=VALUE] [-o rows.jsonl]

DATASET is Chengdu prepared with its published positions and split. The draws at 1/8 and 1/16 are those of
``chengdu828.json``; beside them stand every 8th and every 16th step (and the last), which is an easier test. Methods
learn from the dataset's training trips. One row of JSON for each result goes to the file given by ``-o``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.report import describe
from tedtrajrec.evaluation.run import Draw, Evaluation, draw_steps, evaluate_draw
from tedtrajrec.files import replacing
from tedtrajrec.methods.registry import METHODS, make_method

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
KEEPS = ("1/8", "1/16")

PEERS = (
    # what, accuracy, recall, precision, F1 on other draws of the same rule, or on this one (*)
    ("linear, then nearest segment", 0.296, 0.433, 0.298, 0.341),
    ("fastmm + constant speed *", 0.611, 0.712, 0.697, 0.696),
    ("plain HMM + constant speed", 0.650, 0.725, 0.743, 0.725),
    ("plain HMM + popular route, pace", 0.667, 0.733, 0.749, 0.732),
    ("plain HMM + votes of past trips", 0.697, 0.745, 0.772, 0.751),
    ("parallel decoder + Viterbi", 0.714, 0.783, 0.856, 0.811),
)
"""Measured elsewhere at 1/8, random."""


def fixed_draws(dataset: Dataset, drawn: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Draw]:
    """Return the draws of the file and the even ones of the same trips."""
    test = dataset.split("test")
    number = {traj_id: i for i, traj_id in enumerate(test.trips().traj_id.tolist())}
    found = [traj_id for traj_id in drawn if traj_id in number]
    if len(found) < len(drawn):
        print(f"{len(drawn) - len(found)} of {len(drawn)} trips are not in the dataset and are left out")
    trips = np.array([number[traj_id] for traj_id in found], np.int64)
    lengths = test.lengths[trips]
    first = np.cumsum(lengths) - lengths
    draws = []
    for keep in KEEPS:
        masks = {"fixed": np.zeros(lengths.sum(), bool), f"every {keep[2:]}th": np.zeros(lengths.sum(), bool)}
        for traj_id, start, length in zip(found, first.tolist(), lengths.tolist(), strict=True):
            steps = np.array(drawn[traj_id][keep])
            if steps[-1] != length - 1:
                raise SystemExit(f"{traj_id} has {length} steps in the dataset, and {steps[-1] + 1} in the draw")
            masks["fixed"][start + steps] = True
            masks[f"every {keep[2:]}th"][start + np.arange(0, length, int(keep[2:]))] = True
            masks[f"every {keep[2:]}th"][start + length - 1] = True
        for rule, mask in masks.items():
            draw = draw_steps(dataset, keep=keep, trips=trips, observed=mask)
            draws.append(dataclasses.replace(draw, rule=rule))
    return draws


def print_table(evaluations: Sequence[Evaluation]) -> None:
    """Print results in the form of the peers' table, and the peers' own at 1/8."""
    head = f"{'method':<34}{'keep':>6}{'rule':>12}{'fixes':>7}"
    print(f"\n{head}{'accuracy':>17}{'recall / prec. / F1':>25}{'observed':>10}{'missing':>9}{'trips/s':>9}")
    for e in sorted(evaluations, key=lambda e: (e.draw.keep, e.draw.rule == "fixed"), reverse=True):
        s = e.summary
        print(
            f"{e.method:<34}{e.draw.keep!s:>6}{e.draw.rule:>12}{s['mean_fixes']:>7.2f}"
            f"{s['accuracy']:>9.3f} ± {s['accuracy_se']:.3f}{s['recall']:>9.3f} / {s['precision']:.3f} / {s['f1']:.3f}"
            f"{s['accuracy_observed']:>10.3f}{s['accuracy_missing']:>9.3f}{e.trips_per_s:>9,.0f}"
        )
    print("measured elsewhere:")
    for what, accuracy, recall, precision, f1 in PEERS:
        scores = f"{accuracy:>9.3f}{'':>8}{recall:>9.3f} / {precision:.3f} / {f1:.3f}"
        print(f"{what:<34}{'1/8':>6}{'random':>12}{'':>7}{scores}")


def main() -> None:
    """Evaluate the methods and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("methods", nargs="+", choices=METHODS, metavar="METHOD")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, for all methods")
    parser.add_argument("--draws", type=Path, default=DATA.parent / "peers" / "chengdu828.json")
    parser.add_argument("-o", "--output", type=Path, help="file for one row of JSON per result")
    arguments = parser.parse_args()

    dataset = Dataset(arguments.dataset)
    draws = fixed_draws(dataset, json.loads(arguments.draws.read_text())["trips"])
    evaluations: list[Evaluation] = []
    rows: list[dict[str, Any]] = []
    for name in arguments.methods:
        method = make_method(name, dataset.network, arguments.set)
        start = time.perf_counter()
        method.precompute(dataset)
        seconds = time.perf_counter() - start
        print(f"{name}: learned in {seconds:.1f} s")
        for draw in draws:
            evaluations.append(evaluate_draw(method, draw))
            rows.append(describe(evaluations[-1]) | {"precompute_s": seconds})
    print_table(evaluations)
    if arguments.output is not None:
        with replacing(arguments.output) as beside:
            beside.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
