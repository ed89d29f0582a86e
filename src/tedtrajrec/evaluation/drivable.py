"""Whether recovered trips can be driven: connected, in the time there is, forwards, and past the fixes.

``docs/metrics.md`` has the rules. ``tests/evaluation/drive_checker.py`` says the same in other words and other code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOTORWAY_MPS = 120 / 3.6
TOLERANCE_M = 1.0  # ratios have 32 bits, and a vehicle that stands still is seen a little before and behind
FAR_M = 100.0


@dataclass(frozen=True, eq=False)
class Drives:
    """What keeps T trips from being driven, counted for each.

    A move leads from one position of a trip to the next that is known. Backward moves are no breaks.
    """

    moves: Ints  # [T]
    breaks: Ints  # [T] moves for which there is no way at the top speed
    breaks_120kmh: Ints  # [T] ... at 120 km/h
    no_path: Ints  # [T] ... at any speed: the map leads in no way from one to the other
    backward: Ints  # [T] moves back along one segment
    far: Ints  # [T] observed steps whose position is too far from the fix
    unplaced: Ints  # [T] steps without a position

    def __len__(self) -> int:
        return len(self.moves)

    def columns(self) -> dict[str, Ints]:
        """Return the counts by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def drivable(self) -> Mask:
        """Which trips have none of these faults at the top speed [T]."""
        return self._without_faults(self.breaks)

    @property
    def drivable_120kmh(self) -> Mask:
        """Which trips have none of them at 120 km/h [T]."""
        return self._without_faults(self.breaks_120kmh)

    def _without_faults(self, breaks: Ints) -> Mask:
        whole: Mask = breaks + self.backward + self.far + self.unplaced == 0
        return whole

    def summary(self) -> dict[str, float]:
        """Return shares of trips (``drivable``, ``broken``, ``no_path``, ...) and faults a trip (``..._per_trip``)."""

        def mean(values: Ints | Mask) -> float:
            return float(values.mean()) if len(values) else float("nan")

        return {
            "drivable": mean(self.drivable),
            "drivable_120kmh": mean(self.drivable_120kmh),
            "broken": mean(self.breaks > 0),
            "broken_120kmh": mean(self.breaks_120kmh > 0),
            "without_path": mean(self.no_path > 0),
            "breaks_per_trip": mean(self.breaks),
            "breaks_120kmh_per_trip": mean(self.breaks_120kmh),
            "no_path_per_trip": mean(self.no_path),
            "backward_per_trip": mean(self.backward),
            "far_per_trip": mean(self.far),
        }


def check_drives(
    router: Router,
    offsets: Ints,
    segment: ArrayLike,
    ratio: ArrayLike,
    *,
    step_s: float,
    fix_lon: Floats | None = None,
    fix_lat: Floats | None = None,
    observed: Mask | None = None,
    top_speed_mps: float = TOP_SPEED_MPS,
    tolerance_m: float = TOLERANCE_M,
    far_m: float = FAR_M,
    workers: int | None = None,
) -> Drives:
    """Count what keeps trips from being driven.

    Parameters
    ----------
    router
        Over the metres of the network.
    offsets
        Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
    segment, ratio
        Positions [N]; segment -1 where there is none. Such steps are passed over: the next move has more time.
    step_s
        Seconds from one step to the next.
    fix_lon, fix_lat, observed
        The fixes [N], and at which steps there are any to be near to; None: nowhere.
    top_speed_mps
        No way may need more, but for the tolerance.
    tolerance_m
        How far back along a segment still is standing, and how much longer a way may be than the speed allows.
    far_m
        How far from its fix a position may be.
    workers
        Threads to use; None: all cores. Results do not depend on it.
    """
    network = router.network
    if router.cost is not network.length_m:
        raise ValueError("the router adds up another cost; ways are measured in metres")
    if not (top_speed_mps > 0 and step_s > 0):
        raise ValueError("the top speed and the step must be positive")
    seg = np.asarray(segment).astype(np.int64, copy=False)
    along = np.asarray(ratio, np.float64)
    n_trips = len(offsets) - 1
    trip = np.repeat(np.arange(n_trips), np.diff(offsets))

    def count(which: Ints) -> Ints:
        return np.bincount(trip[which], minlength=n_trips)

    placed = np.flatnonzero(seg >= 0)
    start, end = placed[:-1], placed[1:]
    same_trip = trip[start] == trip[end]
    start, end = start[same_trip], end[same_trip]
    seconds = (end - start) * float(step_s)

    ahead_m = (along[end] - along[start]) * network.length_m[seg[start]]
    stays = seg[start] == seg[end]
    way_m = np.where(stays, np.maximum(ahead_m, 0.0), np.inf)
    other = np.flatnonzero(~stays)
    reach = max(top_speed_mps, MOTORWAY_MPS) * seconds + tolerance_m
    way_m[other] = router.distances(
        seg[start[other]],
        along[start[other]],
        seg[end[other]],
        along[end[other]],
        limit_m=reach[other],
        workers=workers,
    )
    broken = way_m > top_speed_mps * seconds + tolerance_m
    far = np.zeros(0, np.int64)
    if observed is not None and fix_lon is not None and fix_lat is not None:
        seen = np.flatnonzero(observed & (seg >= 0))
        away = short_distance_m(*network.point_at(seg[seen], along[seen]), fix_lon[seen], fix_lat[seen])
        far = seen[away > far_m]
    return Drives(
        moves=count(start),
        breaks=count(start[broken]),
        breaks_120kmh=count(start[way_m > MOTORWAY_MPS * seconds + tolerance_m]),
        no_path=count(start[_without_path(network, seg, start, end, broken)]),
        backward=count(start[stays & (ahead_m < -tolerance_m)]),
        far=count(far),
        unplaced=count(np.flatnonzero(seg < 0)),
    )


def _without_path(network: RoadNetwork, segment: Ints, start: Ints, end: Ints, broken: Mask) -> Ints:
    """Return those of the broken moves between whose segments there is no path of any length.

    Within a strong component there always is one. Components are few beside segments, and one look at what can be
    reached from each serves all the moves that begin there; routes would be searched through half of the map.
    """
    move = np.flatnonzero(broken & (segment[start] != segment[end]))
    component = strong_components(network)
    origin, goal = component[segment[start[move]]], component[segment[end[move]]]
    n = int(component.max(initial=0)) + 1
    turn_from = np.repeat(component, np.diff(network.succ_offset))
    graph = csr_array((np.ones(len(network.succ), np.int32), (turn_from, component[network.succ])), shape=(n, n))
    lost = np.zeros(len(move), bool)
    for source in np.unique(origin[origin != goal]).tolist():
        unseen = np.ones(n, bool)
        unseen[breadth_first_order(graph, source, return_predecessors=False)] = False
        lost |= (origin == source) & unseen[goal]
    return move[lost].astype(np.int64, copy=False)
