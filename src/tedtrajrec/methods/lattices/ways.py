"""Ways from the candidates of one step to those of the next, from the table of what is near."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.past.places import room_for, slot_of
from tedtrajrec.network.near import NearTable

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

INSIDE, INTO, OUT_OF = 0, 1, 2  # kinds of ways of a gap: inside it, into it (or past it, without steps), out of it
NO_WAY = -1
UNIT_S = 0.01
LONGEST = 32767  # units


class Near(NamedTuple):
    """A :class:`~tedtrajrec.network.near.NearTable` as compiled code takes it."""

    offset: Ints
    target: Segments
    seconds: Reals

    @staticmethod
    def of(table: NearTable) -> Near:
        """Return the part of a table that is read here."""
        return Near(table.offsets, table.target, table.seconds)


@njit(cache=True, nogil=True)
def fill_ways(
    near: Near, segment: Ints, size: Ints, step: Ints, n_fixes: Ints, low: int, high: int, out: NDArray[np.int16]
) -> None:  # pragma: no cover  (compiled)
    """Fill in the ways of trips ``low`` to ``high``.

    Parameters
    ----------
    near
        What is near.
    segment, size
        Candidates of all lists [B, J, C], and how many they are [B, J].
    step, n_fixes
        Steps of the fixes [B, m], and how many a trip has [B].
    low, high
        Which trips.
    out
        For each gap ways of the three kinds, in hundredths of a second; -1 where there is none within a step
        [B, 3m, C, C].
    """
    table = np.empty(room_for(segment.shape[2]), np.int32)
    place = np.empty(len(table), np.int32)
    for b in range(low, high):
        out[b] = NO_WAY
        for g in range(n_fixes[b] - 1):
            fix, gap, following = 2 * g, 2 * g + 1, 2 * g + 2
            if step[b, g + 1] - step[b, g] > 1:
                _enter(segment[b, gap, : size[b, gap]], table, place)
                _look_up(near, segment[b, gap, : size[b, gap]], table, place, out[b, 3 * g + INSIDE])
                _look_up(near, segment[b, fix, : size[b, fix]], table, place, out[b, 3 * g + INTO])
                _enter(segment[b, following, : size[b, following]], table, place)
                _look_up(near, segment[b, gap, : size[b, gap]], table, place, out[b, 3 * g + OUT_OF])
            else:
                _enter(segment[b, following, : size[b, following]], table, place)
                _look_up(near, segment[b, fix, : size[b, fix]], table, place, out[b, 3 * g + INTO])


@njit(cache=True, nogil=True)
def _enter(segment: Ints, table: Segments, place: Segments) -> None:  # pragma: no cover  (compiled)
    table[:] = -1
    for d in range(len(segment)):
        slot = slot_of(table, segment[d])
        table[slot], place[slot] = segment[d], d


@njit(cache=True, nogil=True)
def _look_up(
    near: Near, source: Ints, table: Segments, place: Segments, out: NDArray[np.int16]
) -> None:  # pragma: no cover  (compiled)
    for c in range(len(source)):
        for i in range(near.offset[source[c]], near.offset[source[c] + 1]):
            slot = slot_of(table, near.target[i])
            if table[slot] >= 0:
                out[c, place[slot]] = min(near.seconds[i] / UNIT_S, LONGEST)
