"""One chunk of the input becomes one part: cleaned, on the step grid, with true positions, judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tedtrajrec.data.preparing import listing
from tedtrajrec.data.preparing.config import PrepareConfig
from tedtrajrec.data.preparing.drops import Drop, count_drops, judge, trimmed
from tedtrajrec.data.preparing.fingerprints import hash_fixes
from tedtrajrec.data.preparing.given import EdgeIds, check_segments, splits_of
from tedtrajrec.data.preparing.grid import fixes_on_grid, step_grid
from tedtrajrec.data.preparing.parts import Account, Part
from tedtrajrec.data.preparing.splitting import NO_SPLIT
from tedtrajrec.data.preparing.truth import distances_m, make_truth
from tedtrajrec.errors import InputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.clean import clean_trips
from tedtrajrec.trips.match import Matcher
from tedtrajrec.trips.table import Trips


class ChunkPreparer:
    """Makes parts of chunks; keeps the indexes of the network between them.

    Parameters
    ----------
    network
        The road network.
    config
        The settings.
    source
        The file of trips, for messages.
    workers
        Number of threads of the matcher.
    """

    def __init__(self, network: RoadNetwork, config: PrepareConfig, source: Path, workers: int | None = None) -> None:
        self.config = config
        self.source = source
        self.workers = workers
        self._network = network
        self._finder = CandidateFinder(network)
        # Making one ready takes minutes where the network is large.
        self._matcher = Matcher(network, config.match) if config.truth.may_match else None
        self._edges = EdgeIds(network) if self._edge_column else None

    @property
    def extras(self) -> list[str]:
        """The extra columns that are needed from the file."""
        split = self.config.split.column if self.config.split.by == "column" else ""
        names = (self._edge_column, split, self.config.clean.active_column)
        return list(dict.fromkeys(name for name in names if name))

    def prepare(self, chunk: Trips) -> Part:
        """Return the part of a chunk of trips."""
        cleaned = clean_trips(self._with_truth(chunk), self.config.clean, self._finder)
        trips = cleaned.trips
        grid = step_grid(trips, self.config.step_s)
        lon, lat = fixes_on_grid(trips, grid, self.config.largest_fix_gap_s)
        truth = make_truth(trips, grid, self._matcher, self.config.truth, workers=self.workers)
        distance = distances_m(self._network, lon, lat, truth)
        steps = Trips(trips.traj_id, grid.offsets, grid.time, lon, lat, truth.segment, truth.ratio)
        inside = trimmed(steps)
        steps = steps.keep_fixes(inside)
        why = judge(steps, distance[inside], truth.broken, self.config.drop)
        split = np.full(len(trips), NO_SPLIT, np.int8)
        if self.config.split.by == "column":
            split = splits_of(trips, self.config.split.column, self.source)
            why[(split == NO_SPLIT) & (why == 0)] = Drop.NO_SPLIT
        kept, gone = why == 0, np.flatnonzero(why)
        at = trips.offsets[gone]
        rows = listing.trip_rows(trips.traj_id[gone], trips.time[at], trips.lon[at], trips.lat[at], why[gone])
        used = trips.select(kept)
        return Part(
            steps=steps.select(kept),
            split=split[kept],
            fixes=hash_fixes(used),
            fix_offsets=used.offsets,
            account=Account(cleaned.summary, count_drops(why)),
            rejects=listing.cleaning_rows(cleaned.rejects) + rows,
        )

    @property
    def _edge_column(self) -> str:
        return "" if self.config.truth.source == "match" else self.config.truth.edge_column

    def _with_truth(self, chunk: Trips) -> Trips:
        """Return the trips with checked segments if their positions are given, and without any if not."""
        if self.config.truth.source == "match":
            return chunk.replace(segment=None, ratio=None)
        if self._edges is not None:
            chunk = self._edges.with_segments(chunk, self._edge_column, self.source)
        if chunk.segment is None and self.config.truth.source == "auto":
            return chunk.replace(ratio=None)
        for name, column in (("segment", chunk.segment), ("ratio", chunk.ratio)):
            if column is None:
                raise InputError(
                    f"there is no column {name}, so the true positions are not given",
                    file=self.source,
                    remedy=f"Name it with --columns {name}=X, or match the trips with truth.source=match.",
                )
        if self._edges is None:
            check_segments(chunk, self._network, self.config.columns.get("segment", "segment"), self.source)
        return chunk
