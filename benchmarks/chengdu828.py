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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.given import given_draw
from tedtrajrec.evaluation.report import describe
from tedtrajrec.evaluation.run import Draw, Evaluation, draw_steps, evaluate_draw
from tedtrajrec.files import replacing
from tedtrajrec.methods.registry import METHODS, load_method, make_method

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


def draws_of(dataset: Dataset, file: Path) -> list[Draw]:
    """Return the draws of the file and the even ones of the same trips."""
    draws = []
    for keep in KEEPS:
        fixed = given_draw(dataset, file, keep)
        length = np.diff(fixed.offsets)
        place = np.arange(fixed.offsets[-1]) - np.repeat(fixed.offsets[:-1], length)
        even = (place % int(keep[2:]) == 0) | (place == np.repeat(length, length) - 1)
        every = draw_steps(dataset, keep=keep, trips=fixed.number, observed=even)
        draws += [fixed, dataclasses.replace(every, rule=f"every {keep[2:]}th")]
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
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="methods, or folders or names of trained ones")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, for all methods")
    parser.add_argument("--draws", type=Path, default=DATA.parent / "peers" / "chengdu828.json")
    parser.add_argument("-o", "--output", type=Path, help="file for one row of JSON per result")
    arguments = parser.parse_args()

    dataset = Dataset(arguments.dataset)
    draws = draws_of(dataset, arguments.draws)
    evaluations: list[Evaluation] = []
    rows: list[dict[str, Any]] = []
    for name in arguments.methods:
        start = time.perf_counter()
        if name in METHODS:
            method = make_method(name, dataset.network, arguments.set)
            method.precompute(dataset)
        else:
            method = load_method(name, dataset.network)
        seconds = time.perf_counter() - start
        print(f"{name}: ready in {seconds:.1f} s")
        for draw in draws:
            evaluations.append(evaluate_draw(method, draw))
            rows.append(describe(evaluations[-1]) | {"precompute_s": seconds})
    print_table(evaluations)
    if arguments.output is not None:
        with replacing(arguments.output) as beside:
            beside.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
