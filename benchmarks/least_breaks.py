"""How many breaks of recovered trips no other trip past the fixes could have avoided.

    python benchmarks/least_breaks.py porto/ results/parallel/trips/own_map-porto-*-1of8-*.npz --keep 1/8

A trip is drivable where positions within 100 m of all its fixes exist with a way between each two of them at 144 km/h
in the time there is. Of all test trips of a draw it is said how many are not, whatever one answers, and for each file
of recovered trips how many of them have a break, and how many of these could be driven.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.drivable import FAR_M, check_drives
from tedtrajrec.evaluation.run import Draw, batches_of, draw_steps
from tedtrajrec.experiments.trips import load_trips
from tedtrajrec.methods.near_fixes import Fixes, Known, choose_fixes, roads_around
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
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
    args = parser.parse_args()
    draw = draw_steps(Dataset(args.dataset), keep=args.keep)
    router = Router(draw.dataset.network)
    least = least_breaks(draw, router)
    never = f"{(least > 0).sum():,} of {len(draw):,}"
    print(f"{args.dataset}, keep {args.keep}: {never} trips cannot be driven past their fixes, whatever is answered")
    for file in args.recovered:
        trips = load_trips(file)
        if not np.array_equal(trips.observed, draw.observed):
            raise SystemExit(f"{file}: these trips are of another draw")
        ratio = trips.ratio.astype(float)  # of 16 bits, which a metre or two of a long segment may be lost to
        breaks = check_drives(
            router, trips.offsets, trips.segment, ratio, step_s=draw.dataset.info.step_s, tolerance_m=5.0
        ).breaks
        drivable = (breaks > 0) & (least == 0)
        print(f"{file.stem}: breaks in {(breaks > 0).sum():,} trips, {drivable.sum():,} of which could be driven")


if __name__ == "__main__":
    main()
