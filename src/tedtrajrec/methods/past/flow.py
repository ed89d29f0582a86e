"""What flows in a city: which segments follow each other in past trips, and how many vehicles come by, by the hour."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import Cells
from tedtrajrec.trips.table import Trips

HOURS = 24


class Flow(NamedTuple):
    """The segments that past trips were on a step later, ragged over the segments they came from."""

    offset: NDArray[np.int64]  # [S+1]
    segment: NDArray[np.int32]  # rises within each segment
    trips: NDArray[np.int32]  # how often

    def padded(self) -> NDArray[np.int32]:
        """Return the segments that follow each, and that itself, which also fills the rest [S, D]."""
        count = np.diff(self.offset)
        table = np.repeat(np.arange(len(count), dtype=np.int32)[:, None], count.max(initial=0) + 1, axis=1)
        table[:, 1:][np.arange(table.shape[1] - 1) < count[:, None]] = self.segment
        return table

    def edges(self, most: int) -> NDArray[np.int64]:
        """Return the flow as edges [2, E] from segment to another, up to so many times the more trips took them."""
        source = np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))
        other = source != self.segment
        source, to, trips = source[other], self.segment[other].astype(np.int64), self.trips[other]
        largest = np.zeros(len(self.offset) - 1, np.int64)
        np.maximum.at(largest, source, trips)
        times = np.ceil(trips / largest[source] * most).astype(np.int64)
        return np.stack([np.repeat(source, times), np.repeat(to, times)])


def flow_of(trips: Trips, n_segments: int) -> Flow:
    """Return the flow of trips of known segments; steps of unknown ones are passed over."""
    if trips.segment is None:
        raise ValueError("the flow needs the segments of the trips")
    here, later = trips.segment[:-1].astype(np.int64), trips.segment[1:].astype(np.int64)
    good = (here >= 0) & (later >= 0)
    good[trips.offsets[1:-1] - 1] = False  # from one trip to the next
    pair, count = np.unique(here[good] * n_segments + later[good], return_counts=True)
    offset = np.searchsorted(pair, np.arange(n_segments + 1) * n_segments)
    return Flow(offset.astype(np.int64), (pair % n_segments).astype(np.int32), count.astype(np.int32))


def no_flow(n_segments: int) -> Flow:
    """Return the flow of no trips."""
    return Flow(np.zeros(n_segments + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))


def traffic_of(trips: Trips, minute: NDArray[np.float32], network: RoadNetwork, cells: Cells) -> NDArray[np.float32]:
    """Return how many vehicles entered each cell in each hour [24, rows, columns], as shares of the most in the hour.

    Parameters
    ----------
    trips, minute
        Trips of known positions, and the local minute of day of their steps.
    network, cells
        Where they are, and cells in the metres of its plane.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the traffic needs the positions of the trips")
    known = trips.segment >= 0
    trip = np.repeat(np.arange(len(trips)), trips.lengths)[known]
    lon, lat = network.point_at(trips.segment[known], trips.ratio[known])
    cell = cells.number(torch.from_numpy(np.stack(network.plane.to_xy(lon, lat), axis=-1))).numpy()
    hour = np.clip(minute[known] // 60, 0, HOURS - 1).astype(np.int64)
    size = cells.rows * cells.columns
    at = hour * size + cell
    entered = np.ones(len(at), bool)
    entered[1:] = (at[1:] != at[:-1]) | (trip[1:] != trip[:-1])
    count = np.bincount(at[entered], minlength=HOURS * size).reshape(HOURS, -1)
    share: NDArray[np.float32] = (count / np.maximum(count.max(axis=1, keepdims=True), 1)).astype(np.float32)
    return share.reshape(HOURS, cells.rows, cells.columns)
