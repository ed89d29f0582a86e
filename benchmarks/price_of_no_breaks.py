"""How many right steps an answer has to give up so that it breaks only where the map has no way between fixes.

    python benchmarks/price_of_no_breaks.py chengdu/ results/parallel/trips/performance-chengdu-*-1of8-0.npz --keep 1/8

An answer keeps the rule if no more gaps between fixes have a break in it than must have one: positions within 99 m of
both fixes with a way between them at 144 km/h in the time there is. Of the steps of the truth, and of those that files
of recovered trips have right, an exact search takes as many as one such answer can hold. It lets a vehicle be anywhere
along the segments of steps between fixes, even in two places of one, so the true price is higher still. What is printed
is a limit for any method that knows no more right steps than these.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.run import Draw, draw_steps, truth_of
from tedtrajrec.experiments.trips import load_trips
from tedtrajrec.methods.driving import FAR_M
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.routing import Router
from tedtrajrec.network.stretches import stretches
from tedtrajrec.trips.table import Trips

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BREAK = 1e6  # right steps that a break costs: there are as few as there can be
TOLERANCE_M = 1.0


class Places(NamedTuple):
    """Segments that a vehicle may be on at some steps, where it comes to them and where it leaves them."""

    step: Ints
    segment: Ints  # -1 without any road near a fix
    enters: Floats
    leaves: Floats
    right: Bools


class Gap(NamedTuple):
    """The places of a gap from one fix to the next: those of the fix before, right steps between, the fix after."""

    places: Places
    before: int
    after: int


def most_kept(draw: Draw, trips: Trips, router: Router, right: Bools) -> tuple[Ints, Ints]:
    """Return for each trip the fewest gaps with a break, and how many right steps an answer with so few can hold."""
    finder = CandidateFinder(router.network)
    breaks, kept = np.zeros((2, len(draw)), np.int64)
    for trip in range(len(draw)):
        steps = np.arange(draw.offsets[trip], draw.offsets[trip + 1])
        fixes = steps[draw.observed[steps]]
        gaps = _gaps(finder, trips, fixes, right)
        values = np.where(gaps[0].places.right[: gaps[0].before], 1.0, 0.0)
        for gap, joined in zip(gaps, _joined(router, gaps, TOP_SPEED_MPS * draw.dataset.info.step_s), strict=True):
            values = _through(gap, joined, values)
        breaks[trip] = np.ceil(-values.max() / BREAK) if values.max() < 0 else 0
        kept[trip] = values.max() + BREAK * breaks[trip]
    return breaks, kept


def _gaps(finder: CandidateFinder, trips: Trips, fixes: Ints, right: Bools) -> list[Gap]:
    network, truth = finder.network, truth_of(trips)[0].astype(np.int64)
    lon, lat = trips.lon[fixes], trips.lat[fixes]
    found = finder.within(lon, lat, FAR_M)
    row = np.repeat(np.arange(len(fixes)), np.diff(found.offsets))
    x, y = (part[row] for part in network.plane.to_xy(lon, lat))
    near = stretches(network, found.segment, x, y, FAR_M)
    of_fix = []
    for i, fix in enumerate(fixes):
        some = slice(found.offsets[i], found.offsets[i + 1])
        segment = found.segment[some].astype(np.int64)
        is_right = right[fix] & (segment == truth[fix])
        places = Places(np.full(len(segment), fix), segment, near.lowest[some], near.highest[some], is_right)
        nowhere = Places(np.array([fix]), np.array([-1]), np.zeros(1), np.ones(1), np.zeros(1, np.bool_))
        of_fix.append(places if len(segment) else nowhere)
    gaps = []
    for before, after in itertools.pairwise(of_fix):
        inner = np.arange(before.step[0] + 1, after.step[0])
        inner = inner[right[inner]]
        none, all_ = np.zeros(len(inner)), np.ones(len(inner))
        between = Places(inner, truth[inner], none, all_, all_ > 0)
        joint = Places(*(np.concatenate(parts) for parts in zip(before, between, after, strict=True)))
        gaps.append(Gap(joint, len(before.step), len(after.step)))
    return gaps


def _joined(router: Router, gaps: list[Gap], reach_m: float) -> list[Bools]:
    """Return which places of each gap a vehicle can come to from which."""
    pairs = [np.nonzero(gap.places.step[:, None] < gap.places.step[None, :]) for gap in gaps]

    def of(name: str, side: int) -> NDArray[Any]:
        parts = [getattr(gap.places, name)[pair[side]] for gap, pair in zip(gaps, pairs, strict=True)]
        return np.concatenate(parts)

    source, target = of("segment", 0), of("segment", 1)
    known = (source >= 0) & (target >= 0)
    joined = known & (source == target)
    far = np.flatnonzero(known & ~joined)
    limit = reach_m * (of("step", 1) - of("step", 0))[far] + TOLERANCE_M
    way = router.distances(source[far], of("leaves", 0)[far], target[far], of("enters", 1)[far], limit_m=limit)
    joined[far] = np.isfinite(way)
    out, first = [], 0
    for gap, (a, b) in zip(gaps, pairs, strict=True):
        matrix = np.zeros((len(gap.places.step),) * 2, np.bool_)
        matrix[a, b] = joined[first : first + len(a)]
        out.append(matrix)
        first += len(a)
    return out


def _through(gap: Gap, joined: Bools, values: Floats) -> Floats:
    """Return the most right steps up to each place of the fix after, from those up to each of the fix before."""
    n = len(gap.places.step)
    best = np.append(values, np.full(n - gap.before, -np.inf))
    for place in range(gap.before, n):
        best[place] = np.where(joined[:, place], best, -np.inf).max() + gap.places.right[place]
    between = n - gap.before - gap.after
    after = slice(n - gap.after, n)
    broken: Floats = values.max() + between - BREAK + gap.places.right[after]
    most: Floats = np.maximum(best[after], broken)
    return most


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("recovered", type=Path, nargs="*", help="trips/*.npz beside rows of benchmark")
    parser.add_argument("--keep", default="1/8")
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    args = parser.parse_args()
    dataset = Dataset(args.dataset)
    router = Router(dataset.network)
    draw = draw_steps(dataset, keep=args.keep, split=args.split, trips=np.arange(len(dataset.split(args.split))))
    trips = dataset.split(args.split).trips(draw.number)
    truth = truth_of(trips)[0]
    answers = {"the truth": truth}
    for file in args.recovered:
        found = load_trips(file)
        if not np.array_equal(found.observed, draw.observed):
            raise SystemExit(f"{file}: these trips are of another draw")
        answers[file.stem] = found.segment
    trip = np.repeat(np.arange(len(draw)), np.diff(draw.offsets))
    known = np.bincount(trip, truth >= 0, len(draw))
    counted = known > 0
    for name, segment in answers.items():
        right = (segment == truth) & (truth >= 0)
        breaks, kept = most_kept(draw, trips, router, right)
        before, after = ((count / known)[counted].mean() for count in (np.bincount(trip, right, len(draw)), kept))
        share = (breaks > 0).mean()
        print(f"{name}: accuracy {before:.3f}, at most {after:.3f} of it with breaks in the {share:.3f} of trips")


if __name__ == "__main__":
    main()
