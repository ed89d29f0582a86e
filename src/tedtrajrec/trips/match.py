"""Map matching: fixes to positions on the road network, and the routes between them.

A hidden Markov model in the manner of Newson and Krumm (2009) that also uses time; ``docs/matching.md`` describes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.candidates import as_points
from tedtrajrec.network.grid import build_grid
from tedtrajrec.network.grid_search import GridSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.progress import progress
from tedtrajrec.threads import processors
from tedtrajrec.trips.matching import lattice, routes, transitions
from tedtrajrec.trips.matching.config import PRESETS, MatchConfig
from tedtrajrec.trips.matching.fixes import choose_fixes, evidence, find_candidates, find_noise
from tedtrajrec.trips.matching.ways import Scratch, new_scratch, roads_of
from tedtrajrec.trips.table import Trips

__all__ = ["ENDS", "PRESETS", "STATUS", "MatchConfig", "Matched", "Matcher", "match"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

STATUS = ("matched", "followed", "off_map", "no_route", "too_fast")
"""Status of a fix: used by the chain; too near to a used one and matched to its route; or unmatched, because no road
is near, no route leads to it from the fixes before, or none that can be driven in the time."""

ENDS = ("end_of_trip", "off_map", "no_route", "too_fast", "long_gap")
"""Why a piece of a trip ends."""

CHUNK = 4096  # fixes a thread takes at a time


@dataclass(frozen=True, eq=False)
class Matched:
    """F matched fixes of T trips, and the routes of their P pieces; a trip has several pieces where the chain broke."""

    segment: Segments  # [F] -1 where unmatched
    ratio: Floats  # [F] 0..1 along it, NaN where unmatched
    distance_m: Floats  # [F] from the fix to its position, NaN where unmatched
    lon: Floats  # [F] of the position, NaN where unmatched
    lat: Floats  # [F]
    probability: Floats  # [F] of the segment given the whole trip; 0 where unmatched
    status: NDArray[np.uint8]  # [F] index into STATUS
    piece: Ints  # [F] -1 where unmatched
    piece_offsets: Ints  # [T+1] trip i has the pieces piece_offsets[i]:piece_offsets[i + 1]
    piece_ends: NDArray[np.uint8]  # [P] index into ENDS
    route_offsets: Ints  # [P+1] piece p has the segments route_offsets[p]:route_offsets[p + 1]
    route_segment: Segments  # [N] in driving order; every one may follow the one before
    route_enter: Floats  # [N] epoch seconds; of a piece's first segment the time of its first fix
    route_leave: Floats  # [N] of its last segment the time of its last fix

    def route(self, piece: int) -> Segments:
        """Return the segments of one piece."""
        return self.route_segment[self.route_offsets[piece] : self.route_offsets[piece + 1]]


class Matcher:
    """Matches trips to one network; keeps its indexes and working memory between calls.

    Results do not depend on the number of workers, nor on the other trips matched with a trip.

    The first matcher of a network prepares it for finding routes: 1 s for 20,000 segments, 1 to 10 minutes for a
    million.

    Memory: about 70 bytes for each vertex of the network, and for each segment 300 to 600 and labels of 2 to 5 KiB,
    for which twice as much is needed while they are made; for each thread 56 bytes a segment; for each fix about 90
    bytes of result and 15 a segment driven.

    Parameters
    ----------
    network
        The road network.
    config
        The settings; see also :meth:`MatchConfig.preset`.
    near
        The network whose segments fixes may be on, with the same numbers; all of ``network`` if not given.
    """

    def __init__(
        self, network: RoadNetwork, config: MatchConfig | None = None, *, near: RoadNetwork | None = None
    ) -> None:
        self.network = network
        self.config = config or MatchConfig()
        self._search = GridSearch(build_grid(near or network))
        self._roads = roads_of(network, self.config.u_turn_m, self.config.speed_power)
        self._lines = routes.Lines(network.geom_offset, *network.geom_xy, network.geom_along)
        self._model = transitions.new_model(self.config)
        self._scratch: list[Scratch] = []

    def match(self, trips: Trips, *, workers: int | None = None, show_progress: bool = False) -> Matched:
        """Match all fixes of ``trips``.

        Parameters
        ----------
        trips
            Trips whose fixes are in order of time; fixes of equal time are allowed.
        workers
            Number of threads; all processors if not given.
        show_progress
            Whether to show a bar.
        """
        as_points(trips.lon, trips.lat)
        _check_order(trips)
        parts = list(_parts(trips.offsets))
        threads = min(workers or processors(), len(parts))
        if threads <= 1:
            results = (self._match_part(trips, part) for part in parts)
            found = list(progress(results, "match", total=len(parts)) if show_progress else results)
        else:
            with ThreadPoolExecutor(threads) as pool:
                done = pool.map(lambda part: self._match_part(trips, part), parts)
                found = list(progress(done, "match", total=len(parts)) if show_progress else done)
        return self._join(len(trips), parts, found)

    def _match_part(self, trips: Trips, part: slice) -> tuple[routes.Positions, routes.Driven]:
        offsets = trips.offsets[part.start : part.stop + 1]
        rows = slice(offsets[0], offsets[-1])
        offsets = offsets - offsets[0]
        x, y = self.network.plane.to_xy(trips.lon[rows], trips.lat[rows])
        fixes = x, y, trips.time[rows]
        noise = find_noise(self._search, x, y, offsets, self.config)
        used, at_x, at_y = choose_fixes(*fixes, offsets, noise, self.config.thin)
        weight = evidence(fixes[2], offsets, used, self.config.drift_s)
        found = find_candidates(self._search, self.network, at_x, at_y, noise, weight, self.config)
        n = len(x)
        positions = routes.Positions(
            segment=np.full(n, -1, np.int32),
            along=np.full(n, np.nan),
            distance=np.full(n, np.nan),
            probability=np.zeros(n),
            piece=np.full(n, -1),
            status=np.zeros(n, np.uint8),
        )
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = new_scratch(self.network.n_segments)
        places = at_x, at_y, fixes[2]
        chain = lattice.build_lattice(self._roads, scratch, self._model, found, places, offsets, used, positions.status)
        probability, chosen = lattice.smooth(found, chain)
        driven = routes.drive(
            self._roads, scratch, self._model, self._lines, found, chain, probability, chosen, fixes, offsets, positions
        )
        self._scratch.append(scratch)
        return positions, driven

    def _join(self, n_trips: int, parts: list[slice], found: list[tuple[routes.Positions, routes.Driven]]) -> Matched:
        """Put the parts together, with numbers of trips, pieces and routes that run on."""
        places = [p for p, _ in found]
        driven = [d for _, d in found]
        segment = _concat([p.segment for p in places], np.int32)
        along = _concat([p.along for p in places], np.float64)
        matched = segment >= 0
        ratio = np.full(len(segment), np.nan)
        lon, lat = ratio.copy(), ratio.copy()
        ratio[matched] = (along[matched] / self.network.length_m[segment[matched]]).clip(0, 1)
        lon[matched], lat[matched] = self.network.point_at(segment[matched], ratio[matched])
        n_pieces = np.cumsum([0, *(len(d.trip) for d in driven)])
        trip = _concat([d.trip + part.start for d, part in zip(driven, parts, strict=True)], np.int64)
        piece = _concat(
            [np.where(p.piece < 0, -1, p.piece + n) for p, n in zip(places, n_pieces, strict=False)], np.int64
        )
        n_driven = np.cumsum([0, *(len(d.segment) for d in driven)])
        return Matched(
            segment=segment,
            ratio=ratio,
            distance_m=_concat([p.distance for p in places], np.float64),
            lon=lon,
            lat=lat,
            probability=_concat([p.probability for p in places], np.float64),
            status=_concat([p.status for p in places], np.uint8),
            piece=piece,
            piece_offsets=np.searchsorted(trip, np.arange(n_trips + 1)).astype(np.int64),
            piece_ends=_concat([d.ends for d in driven], np.uint8),
            route_offsets=np.concatenate(
                [[0], *(d.offset[1:] + n for d, n in zip(driven, n_driven, strict=False))]
            ).astype(np.int64),
            route_segment=_concat([d.segment for d in driven], np.int32),
            route_enter=_concat([d.enter for d in driven], np.float64),
            route_leave=_concat([d.leave for d in driven], np.float64),
        )


def match(
    trips: Trips,
    network: RoadNetwork,
    config: MatchConfig | None = None,
    *,
    workers: int | None = None,
    show_progress: bool = False,
) -> Matched:
    """Match trips to a network; see :class:`Matcher`, which serves many calls on one network."""
    return Matcher(network, config).match(trips, workers=workers, show_progress=show_progress)


def _concat(arrays: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def _parts(offsets: Ints) -> Iterator[slice]:
    """Divide trips into parts of about CHUNK fixes; a trip is never divided."""
    if len(offsets) > 1:
        starts = np.flatnonzero(np.diff(offsets[:-1] // CHUNK, prepend=-1))
        for first, last in itertools.pairwise([*starts.tolist(), len(offsets) - 1]):
            yield slice(first, last)


def _check_order(trips: Trips) -> None:
    back = np.diff(trips.time) < 0
    starts = trips.offsets[1:-1]
    back[starts[(starts > 0) & (starts < trips.n_fixes)] - 1] = False
    if back.any():
        row = int(back.argmax()) + 1
        raise InputError(
            f"trip {trips.traj_id[trips.trip_of_fix[row]]} has a fix that is earlier than the one before it",
            row=row + 1,
            field="time",
            remedy="Sort each trip by time, or clean the trips first.",
        )
