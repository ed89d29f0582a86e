"""How many breaks of recovered trips no other trip past the fixes could have avoided.

    python benchmarks/least_breaks.py porto/ results/few-trips/trips/*-1of8-*.npz --keep 1/8
    python benchmarks/least_breaks.py porto/ --model RUN --set enforced=true

A trip is drivable where positions within 99 m of all its fixes exist with a way between each two of them at 144 km/h in
the time there is (100 m, less what plane and sphere differ by). Of the trips of a draw it is said how many are not,
whatever one answers, and for each file of recovered trips how many of them have a break, and how many of these could be
driven.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.drivable import check_drives
from tedtrajrec.evaluation.run import Draw, batches_of, draw_steps, evaluate_draw
from tedtrajrec.experiments.trips import load_trips
from tedtrajrec.methods.driving import FAR_M
from tedtrajrec.methods.near_fixes import Fixes, Known, choose_fixes, roads_around
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.methods.registry import load_method
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.routing import Router


def least_breaks(draw: Draw, router: Router) -> np.ndarray:
    """Return the fewest breaks that any answer can have, for each trip of a draw."""
    finder, out = CandidateFinder(router.network), np.zeros(len(draw), np.int64)
    reach_m = TOP_SPEED_MPS * draw.dataset.info.step_s
    for number, trips, _ in batches_of(draw, 256):
        at = np.flatnonzero(draw.observed[draw.rows(number)])
        none = np.full((len(at), 0), -1)
        known = Known(none, none.astype(float), none.astype(float), none.astype(bool))
        around = roads_around(finder, trips.lon[at], trips.lat[at], FAR_M, known)
        fixes = Fixes(at, trips.trip_of_fix[at])
        nowhere = np.full(len(at), -1)
        broken = choose_fixes(router, fixes, around, nowhere, np.zeros(len(at)), reach_m, np.inf).broken
        out[number] = np.bincount(fixes.trip[broken], minlength=len(number))
    return out


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("recovered", type=Path, nargs="*", help="trips/*.npz beside rows of benchmark")
    parser.add_argument("--keep", default="1/8")
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    parser.add_argument("--most", type=int, help="trips at most, the first ones")
    parser.add_argument("--model", type=Path, help="run whose trips are recovered now")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="of the model, such as enforced=true"
    )
    args = parser.parse_args()
    dataset = Dataset(args.dataset)
    trips = np.arange(len(dataset.split(args.split)))[: args.most]
    draw = draw_steps(dataset, keep=args.keep, split=args.split, trips=trips)
    router = Router(dataset.network)
    least = least_breaks(draw, router)
    never = f"{(least > 0).sum():,} of {len(draw):,}"
    print(f"{args.dataset}, keep {args.keep}: {never} trips cannot be driven past their fixes, whatever is answered")

    def tell(name: str, breaks: np.ndarray) -> None:
        drivable = (breaks > 0) & (least == 0)
        print(f"{name}: breaks in {(breaks > 0).sum():,} trips, {drivable.sum():,} of which could be driven")

    for file in args.recovered:
        found = load_trips(file)
        if not np.array_equal(found.observed, draw.observed):
            raise SystemExit(f"{file}: these trips are of another draw")
        ratio = found.ratio.astype(float)  # of 16 bits, which a metre or two of a long segment may be lost to
        tolerant = {"step_s": dataset.info.step_s, "tolerance_m": 5.0}
        tell(file.stem, check_drives(router, found.offsets, found.segment, ratio, **tolerant).breaks)
    if args.model is not None:
        evaluation = evaluate_draw(load_method(args.model, dataset.network, args.settings), draw)
        tell(" ".join([str(args.model), *args.settings]), evaluation.drives.breaks)
        names = ("accuracy", "recall", "precision", "f1", "mae_m", "rmse_m", "backward_per_trip", "far_per_trip")
        print(", ".join(f"{name} {evaluation.summary[name]:.4g}" for name in names))


if __name__ == "__main__":
    main()
