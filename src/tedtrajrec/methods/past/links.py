"""Links: straight segments where past trips show that the map lacks a road.

Where several trips were on segment a at one step and on b at the next, and the map has no route between the two that
can be driven in the time, there is a road between them that the map does not know. A link from the end of a to the
start of b stands for it. The trips left a before its end and joined b behind its start, so a route over a link is too
long as it is: a link counts half its length and takes next to no time. Links carry routes, never positions: what falls
on one is put at its nearer end.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.past.drives import Drives
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Segments = NDArray[np.int32]
D = TypeVar("D", bound=np.generic)

LINK_MPS = 1000.0
LINK_LENGTH = 0.5  # of the straight distance


class Links(NamedTuple):
    """L links, each from the end of one segment to the start of another."""

    source: Segments  # [L]
    target: Segments  # [L]


def find_links(drives: Drives, *, least_trips: int = 2) -> Links:
    """Return the links of all leaps that at least so many trips made, in order of source and target."""
    leaps = np.unique(np.column_stack([drives.leap_from, drives.leap_to, drives.leap_trip]), axis=0)
    pair, trips = np.unique(leaps[:, :2], axis=0, return_counts=True)
    source, target = pair[trips >= least_trips].astype(np.int32).T
    return Links(source.copy(), target.copy())


def with_links(network: RoadNetwork, links: Links) -> RoadNetwork:
    """Return the network with the links as further segments: link i is segment S + i. Without links it is the same.

    Only the source of a link leads onto it, and it leads to its target alone. It has the class of its source.
    """
    n, count = network.n_segments, len(links.source)
    if count == 0:  # the same network, so that what others prepared of it serves here too
        return network
    link = n + np.arange(count)
    source = np.concatenate([np.repeat(np.arange(n), np.diff(network.succ_offset)), links.source, link])
    follower = np.concatenate([network.succ, link, links.target])
    order = np.lexsort([follower, source])
    start, end = network.seg_to[links.source], network.seg_from[links.target]
    lon, lat = network.node_lon, network.node_lat
    straight = short_distance_m(lon[start], lat[start], lon[end], lat[end])

    def longer(values: NDArray[D], more: NDArray[Any]) -> NDArray[D]:
        return np.concatenate([values, more.astype(values.dtype)])

    return dataclasses.replace(
        network,
        seg_from=longer(network.seg_from, start),
        seg_to=longer(network.seg_to, end),
        # At least a metre: where the ends meet, the map forbids the turn that was taken.
        length_m=longer(network.length_m, (LINK_LENGTH * straight).clip(min=1.0)),
        road_class=longer(network.road_class, network.road_class[links.source]),
        speed_mps=longer(network.speed_mps, np.full(count, LINK_MPS)),
        source_id=longer(network.source_id, np.zeros(count, network.source_id.dtype)),
        geom_offset=longer(network.geom_offset, network.geom_offset[-1] + 2 * np.arange(1, count + 1)),
        geom_lon=longer(network.geom_lon, np.column_stack([lon[start], lon[end]]).ravel()),
        geom_lat=longer(network.geom_lat, np.column_stack([lat[start], lat[end]]).ravel()),
        geom_way_id=longer(network.geom_way_id, np.zeros(2 * count, np.int64)),
        succ_offset=np.searchsorted(source[order], np.arange(n + count + 1)).astype(np.int64),
        succ=follower[order].astype(np.int32),
    )


def off_links(links: Links, n_segments: int, segment: Segments, ratio: Floats) -> tuple[Segments, Floats]:
    """Return positions with those on links moved to the nearer end, on a road."""
    on = segment >= n_segments
    link = segment[on] - n_segments
    first = ratio[on] < 0.5
    segment, ratio = segment.copy(), ratio.copy()
    segment[on] = np.where(first, links.source[link], links.target[link])
    ratio[on] = np.where(first, 1.0, 0.0)
    return segment, ratio
