"""TrImpute + HMM (Elshrif et al., SIGSPATIAL 2022): from fix to fix in short steps, as the crowd moves there.

    around a place p     the points of past trips within 50 m, by direction in 6 sectors
    may go on            in a sector of a share > alpha whose middle is less than delta from the heading,
                         50 m in the mean direction of its points
    search s -> g        first the place of the least (way so far + straight distance to g), as A* does; not ways of
                         3 |sg| or more; a place within 50 m of g ends it
    time                 passes evenly along the way found; where none is, along the straight line

No road is asked for until every step has a point, which is then matched to the map. Points of past trips are counted in
cells of 10 m rather than kept (:mod:`tedtrajrec.methods.past.crowd`).

Differences: the mean direction is that of vectors, and the turn is measured from the middle of a sector (the authors'
code averages angles and takes the sector's lower edge, so that north has a seam); distances are in metres everywhere;
the first heading is towards g; a search ends after 2,000 places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.base import Arrays, Method, Recovered
from tedtrajrec.methods.past.crowd import Crowd, add_around, learn_crowd
from tedtrajrec.methods.past.straight import fixes_around
from tedtrajrec.methods.second_stage import Preset, SecondStage
from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PART = 64  # gaps that one thread works on at a time
SAME_M = 10.0  # places in one square of this size count as the same


@dataclass(frozen=True)
class TrImputeConfig:
    """The settings of TrImpute + HMM; all but the last four are the authors'."""

    radius_m: float = 50.0  # of the crowd around a place
    sectors: int = 6  # of the compass
    share: float = 0.005  # alpha: of the crowd that must move into a sector
    turn_deg: float = 120.0  # delta: sharpest turn
    step_m: float = 50.0  # of the walk, and how near to the next fix it ends
    longest: float = 3.0  # way, as a multiple of the straight line
    most: int = 2000  # places that a search may expand
    crowd: Literal["dense", "sparse"] = "dense"  # training trips as they are, or thinned as those to be recovered
    keep: str = "1/8"  # of their steps, where they are thinned
    preset: Preset = "song12"  # of the matcher

    def __post_init__(self) -> None:
        for name in ("radius_m", "sectors", "turn_deg", "step_m", "longest", "most"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")
        if not 0 <= self.share < 1:
            raise ValueError("share must be at least 0 and below 1")


class Ways(NamedTuple):
    """The ways found between G pairs of places, ragged; the ends are not part of them."""

    offsets: Ints  # [G+1]
    x: Floats
    y: Floats
    found: NDArray[np.bool_]  # [G]


class TrImputeHmm(Method[TrImputeConfig]):
    """Steps between the fixes in directions that the crowd takes there, then matched to the map (TrImpute + HMM)."""

    name: ClassVar[str] = "trimpute_hmm"
    Config: ClassVar[type[TrImputeConfig]] = TrImputeConfig
    PRESETS: ClassVar[dict[str, TrImputeConfig]] = {
        "default": TrImputeConfig(),
        "authors": TrImputeConfig(crowd="sparse"),
    }

    def __init__(self, network: RoadNetwork, config: TrImputeConfig | None = None) -> None:
        super().__init__(network, config)
        self.second = SecondStage(network, self.config.preset)
        nobody = Trips.from_columns([], [], [], [])
        self._crowd = learn_crowd(nobody, network.plane, sectors=self.config.sectors)

    def precompute(self, dataset: Dataset) -> None:
        """Learn the crowd from the training trips."""
        trips = dataset.split("train").trips()
        if self.config.crowd == "sparse":
            trips = trips.keep_fixes(draw_observed(trips, self.config.keep, seed=0))
        self._crowd = learn_crowd(trips, self.network.plane, sectors=self.config.sectors)

    def state(self) -> Arrays:
        """Return the crowd."""
        grid = np.array(self._crowd[:3])
        return {"grid": grid} | {name: getattr(self._crowd, name) for name in Crowd._fields[3:]}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        self._crowd = Crowd(*state["grid"].tolist(), *(state[name] for name in Crowd._fields[3:]))

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step."""
        return self.second.recover(batch, *self.points(batch))

    def points(self, batch: Batch) -> tuple[Floats, Floats]:
        """Return where the first stage is at every real step of a batch: lon and lat [N]."""
        fixes = batch.fixes(self.network)
        before, after, share = fixes_around(batch, fixes)
        x, y = self.network.plane.to_xy(fixes.lon, fixes.lat)
        share = np.where(before == after, 1.0, share)
        gap, step_gap = np.unique(after, return_inverse=True)  # told by the fix at its end
        start = np.maximum(gap - 1, fixes.offsets[fixes.trip_of_fix[gap]])
        ways = find_ways(self._crowd, self.config, np.stack([x[start], y[start], x[gap], y[gap]], axis=1))
        # All ways as one line, told apart by a metre between them, so that one search serves all steps.
        inner = np.repeat(np.arange(len(gap)), np.diff(ways.offsets))
        order = np.argsort(np.concatenate([np.arange(len(gap)), inner, np.arange(len(gap))]), kind="stable")
        line_x = np.concatenate([x[start], ways.x, x[gap]])[order]
        line_y = np.concatenate([y[start], ways.y, y[gap]])[order]
        first = ways.offsets[:-1] + 2 * np.arange(len(gap))
        last = ways.offsets[1:] + 2 * np.arange(len(gap)) + 1
        move = np.hypot(np.diff(line_x, prepend=0), np.diff(line_y, prepend=0))
        move[first] = 1.0
        along = np.cumsum(move)
        at = along[first][step_gap] + share * (along[last] - along[first])[step_gap]
        return self.network.plane.to_lonlat(np.interp(at, along, line_x), np.interp(at, along, line_y))


def find_ways(crowd: Crowd, config: TrImputeConfig, ends: Floats, *, workers: int | None = None) -> Ways:
    """Return the ways that the crowd would take between places: ends [G, 4] are x and y of both, in metres.

    Parameters
    ----------
    crowd, config
        Who moves there, and how it is followed.
    ends
        Of the ways.
    workers
        Number of threads; all processors if not given.
    """
    c = config
    limits = (c.radius_m, c.share, math.cos(math.radians(min(c.turn_deg, 180.0))), c.step_m, c.longest)

    def walk(part: Floats) -> tuple[Ints, Floats, Floats, NDArray[np.bool_]]:
        return _walk(crowd, part, limits, c.most)

    parts = [ends[first : first + PART] for first in range(0, len(ends), PART)] or [ends]
    count, x, y, found = (np.concatenate(column) for column in zip(*map_parts(walk, parts, workers), strict=True))
    return Ways(np.concatenate([[0], np.cumsum(count)]), x, y, found)


@njit(cache=True, nogil=True)
def _walk(
    crowd: Crowd, ends: Floats, limits: tuple[float, float, float, float, float], most: int
) -> tuple[Ints, Floats, Floats, NDArray[np.bool_]]:  # pragma: no cover  (compiled)
    """Return how many places the way of each pair has, these places, and whether there is a way."""
    room = most * crowd.points.shape[1] + 1
    x, y, length, parent = np.empty(room), np.empty(room), np.empty(room), np.empty(room, np.int32)
    east, north = np.empty(room), np.empty(room)  # the heading
    keys, items = np.empty(room), np.empty(room, np.int32)
    count, found = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.bool_)
    out_x, out_y = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    for gap in range(len(ends)):
        goal_x, goal_y = ends[gap, 2], ends[gap, 3]
        far = math.hypot(goal_x - ends[gap, 0], goal_y - ends[gap, 1])
        if far <= limits[3]:
            found[gap] = True
            continue
        x[0], y[0], length[0], parent[0] = ends[gap, 0], ends[gap, 1], 0.0, -1
        east[0], north[0] = (goal_x - x[0]) / far, (goal_y - y[0]) / far
        last = _search(crowd, limits, most, goal_x, goal_y, far, (x, y, length, east, north), parent, (keys, items))
        found[gap] = last >= 0
        at = last
        while at > 0:  # the first place is an end of the way
            out_x.append(0.0)
            out_y.append(0.0)
            count[gap] += 1
            at = parent[at]
        for k in range(count[gap]):
            out_x[-1 - k], out_y[-1 - k] = x[last], y[last]
            last = parent[last]
    return count, np.array(out_x), np.array(out_y), found


@njit(cache=True, nogil=True)
def _search(
    crowd: Crowd,
    limits: tuple[float, float, float, float, float],
    most: int,
    goal_x: float,
    goal_y: float,
    far: float,
    place: tuple[Floats, Floats, Floats, Floats, Floats],
    parent: NDArray[np.int32],
    heap: tuple[Floats, NDArray[np.int32]],
) -> int:  # pragma: no cover  (compiled)
    """Return the number of the place that is near the goal, or -1; the first place is given, ``far`` from it."""
    radius, least, turn, step, longest = limits
    x, y, length, east, north = place
    keys, items = heap
    sectors = crowd.points.shape[1]
    seen = {(round(x[0] / SAME_M), round(y[0] / SAME_M))}
    sums = np.empty((3, sectors))
    n, expanded = 1, 0
    size = push(keys, items, 0, far, 0)
    while size > 0 and expanded < most:
        here = items[0]
        size = pop(keys, items, size)
        if length[here] >= longest * far:
            continue
        expanded += 1
        sums[:] = 0.0
        add_around(crowd, x[here], y[here], radius, sums)
        total = sums[0].sum()
        for k in range(sectors):
            norm = math.hypot(sums[1, k], sums[2, k])
            if sums[0, k] <= least * total or norm == 0.0:
                continue
            middle = (k + 0.5) * 2 * math.pi / sectors
            if math.sin(middle) * east[here] + math.cos(middle) * north[here] <= turn:
                continue
            x[n], y[n] = x[here] + step * sums[1, k] / norm, y[here] + step * sums[2, k] / norm
            cell = (round(x[n] / SAME_M), round(y[n] / SAME_M))
            if cell in seen:
                continue
            seen.add(cell)
            length[n], parent[n] = length[here] + step, here
            east[n], north[n] = sums[1, k] / norm, sums[2, k] / norm
            left = math.hypot(goal_x - x[n], goal_y - y[n])
            if left <= step:
                return n
            size = push(keys, items, size, length[n] + left, n)
            n += 1
    return -1
