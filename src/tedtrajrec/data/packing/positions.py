"""True positions: which segment a trip is on a step later, and how far along."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.packing.range_coder import (
    BIT_BYTES,
    INT_BYTES,
    INT_SLOTS,
    Coder,
    Slots,
    code_below,
    code_bit,
    code_bits,
    code_int,
    new_slots,
    with_room,
)
from tedtrajrec.network.roadnet import RoadNetwork

Ints = NDArray[np.int64]

DEGREE = 1_000_000  # places are in microdegrees
PART_M = 0.2  # segments are divided into equal parts of at most this length

_PAIRS = 1 << 20  # pairs of segments, one step apart, that are remembered
_LONGEST = 64  # of which at most so many from the same segment
_STEP_BYTES = 2 * INT_BYTES + (_LONGEST + 8) * BIT_BYTES

_SPEEDS = 16  # contexts by the distance of the last step
_LEFT = 16  # contexts by how much is left of the segment
_BINS = 64  # of the ratio on a segment just entered
_KNOWN = 0
_STAYS = _KNOWN + 2
_ENTRY = _STAYS + _SPEEDS * _LEFT
_AHEAD = _ENTRY + _SPEEDS * _BINS
_SLOTS = _AHEAD + _SPEEDS * INT_SLOTS


class Roads(NamedTuple):
    """The geometry of a network on the grid that places are on."""

    parts: Ints  # [S] in how many parts a segment is divided
    offset: Ints  # [S+1]
    x: Ints  # [G] microdegrees
    y: Ints  # [G]
    along: NDArray[np.float64]  # [G] from the start of the segment, in microdegrees of latitude
    shrink: float  # a degree of longitude in degrees of latitude


class Followers(NamedTuple):
    """For each segment the ones that trips were on a step later, as linked lists, the more frequent ones first."""

    first: Ints  # [S] number of the first entry, or -1
    after: NDArray[np.int32]  # [_PAIRS] number of the next entry, or -1
    segment: NDArray[np.int32]  # [_PAIRS]
    times: NDArray[np.int32]  # [_PAIRS]
    used: Ints  # [1] entries so far


class PositionModel:
    """Codes true positions on a network, and learns from one call to the next which segment follows which."""

    def __init__(self, network: RoadNetwork) -> None:
        self.roads = _roads(network)
        self._slots = new_slots(_SLOTS)
        self._pairs = new_slots(_PAIRS)
        self._followers = Followers(
            first=np.full(network.n_segments, -1, np.int64),
            after=np.full(_PAIRS, -1, np.int32),
            segment=np.zeros(_PAIRS, np.int32),
            times=np.zeros(_PAIRS, np.int32),
            used=np.zeros(1, np.int64),
        )

    def code(self, coder: Coder, offset: Ints, segment: Ints, part: Ints, x: Ints, y: Ints) -> Coder:
        """Code positions of trips in place and return the coder.

        Parameters
        ----------
        coder
            Writes or reads.
        offset
            Steps of trip i are offset[i]:offset[i + 1] [T+1].
        segment, part
            Where they are [N]; segment -1 if unknown.
        x, y
            Filled with the places of known ones in microdegrees [N].
        """
        coder = with_room(coder, int(offset[-1] - offset[0]) * _STEP_BYTES)
        _code_positions(coder, self._slots, self._pairs, self._followers, self.roads, offset, segment, part, x, y)
        return coder


def _roads(network: RoadNetwork) -> Roads:
    """Return the geometry.

    It must be the same to the last bit wherever a file is read, hence a measure from exact operations only; the cosine,
    on which libraries differ in the last bit, is rounded.
    """
    x, y = (np.rint(degrees * DEGREE).astype(np.int64) for degrees in (network.geom_lon, network.geom_lat))
    shrink = round(1024 * math.cos(math.radians((network.bbox[1] + network.bbox[3]) / 2))) / 1024
    parts = np.maximum(np.ceil(network.length_m / PART_M), 1).astype(np.int64)
    return Roads(parts, network.geom_offset, x, y, _measure(network.geom_offset, x, y, shrink), shrink)


@njit(cache=True, nogil=True)
def _measure(offset: Ints, x: Ints, y: Ints, shrink: float) -> NDArray[np.float64]:  # pragma: no cover  (compiled)
    along = np.zeros(len(x))
    for segment in range(len(offset) - 1):
        for i in range(offset[segment] + 1, offset[segment + 1]):
            east, north = (x[i] - x[i - 1]) * shrink, float(y[i] - y[i - 1])
            along[i] = along[i - 1] + math.sqrt(east * east + north * north)
    return along


@njit(cache=True, nogil=True)
def piece_at(roads: Roads, segment: int, part: int) -> tuple[int, float]:  # pragma: no cover  (compiled)
    """Return the vertex before a position and the share of the piece of road behind it that is driven."""
    vertex, end = roads.offset[segment], roads.offset[segment + 1] - 1
    target = roads.along[end] * (part / roads.parts[segment])
    while vertex < end - 1 and roads.along[vertex + 1] <= target:
        vertex += 1
    length = roads.along[vertex + 1] - roads.along[vertex]
    return vertex, min((target - roads.along[vertex]) / length, 1.0) if length > 0 else 0.0


@njit(cache=True, nogil=True)
def size_of(value: int) -> int:  # pragma: no cover  (compiled)
    """Return the number of bits of a number that is not negative."""
    size = 0
    while value >> size:
        size += 1
    return size


@njit(cache=True, nogil=True)
def _code_positions(
    coder: Coder,
    slots: Slots,
    pairs: Slots,
    followers: Followers,
    roads: Roads,
    offset: Ints,
    segment: Ints,
    part: Ints,
    x: Ints,
    y: Ints,
) -> None:  # pragma: no cover  (compiled)
    known = True
    for trip in range(len(offset) - 1):
        last = -1
        step = 0  # how far the last step went, in microdegrees
        for i in range(offset[trip], offset[trip + 1]):
            known = code_bit(coder, slots, _KNOWN + (1 if known else 0), segment[i] >= 0)
            if not known:
                segment[i], last, step = -1, -1, 0
                continue
            speed = min(size_of(step >> 3), _SPEEDS - 1)
            stays = False
            if last >= 0:
                left = min(size_of((roads.parts[last] - part[i - 1]) >> 4), _LEFT - 1)
                stays = code_bit(coder, slots, _STAYS + speed * _LEFT + left, segment[i] == last)
            if stays:
                segment[i] = last
                ahead = code_int(coder, slots, _AHEAD + speed * INT_SLOTS, part[i] - part[i - 1])
                part[i] = min(max(part[i - 1] + ahead, 0), roads.parts[last])
            else:
                segment[i] = _code_follower(coder, pairs, followers, last, segment[i])
                part[i] = _code_entry(coder, slots, _ENTRY + speed * _BINS, roads.parts[segment[i]] + 1, part[i])
            vertex, share = piece_at(roads, segment[i], part[i])
            x[i] = roads.x[vertex] + np.int64(np.rint(share * (roads.x[vertex + 1] - roads.x[vertex])))
            y[i] = roads.y[vertex] + np.int64(np.rint(share * (roads.y[vertex + 1] - roads.y[vertex])))
            if last >= 0:
                east, north = abs(x[i] - x[i - 1]), abs(y[i] - y[i - 1])
                step = max(east, north) + min(east, north) // 2
            last = segment[i]


@njit(cache=True, nogil=True)
def _code_follower(
    coder: Coder, pairs: Slots, followers: Followers, last: int, segment: int
) -> int:  # pragma: no cover  (compiled)
    """Code the segment after ``last`` (-1: a trip starts) as the first known follower, the second, ..., or a new one.

    Each entry has a slot of its own, so that it learns how likely it is once those before it are ruled out.
    """
    count = len(followers.first)
    if last < 0:
        return code_below(coder, count, segment)
    before, entry, tried = -1, followers.first[last], 0
    while entry >= 0:
        if code_bit(coder, pairs, entry, followers.segment[entry] == segment):
            segment = followers.segment[entry]
            followers.times[entry] += 1
            if before >= 0 and followers.times[entry] > followers.times[before]:
                for column in (followers.segment, followers.times):
                    column[before], column[entry] = column[entry], column[before]
            return segment
        before, entry, tried = entry, followers.after[entry], tried + 1
    segment = code_below(coder, count, segment)
    new = followers.used[0]
    if new < _PAIRS and tried < _LONGEST:
        followers.used[0] += 1
        followers.segment[new], followers.times[new] = segment, 1
        if before < 0:
            followers.first[last] = new
        else:
            followers.after[before] = new
    return segment


@njit(cache=True, nogil=True)
def _code_entry(coder: Coder, slots: Slots, slot: int, count: int, part: int) -> int:  # pragma: no cover  (compiled)
    """Code how far along a segment just entered: in which of its bins, as cars halt at its end, and where in that."""
    bins = min(count, _BINS)
    chosen = min(code_bits(coder, slots, slot, 6, part * bins // count), bins - 1)
    first, end = -(-chosen * count // bins), -(-(chosen + 1) * count // bins)
    return first + code_below(coder, end - first, part - first)
