"""Small tables of where segments stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.methods.past.places import room_for, slot_of


@pytest.mark.parametrize(("most", "room"), [(0, 2), (1, 2), (2, 4), (3, 8), (48, 128), (64, 128), (65, 256)])
def test_a_table_is_never_more_than_half_full(most: int, room: int) -> None:
    assert room_for(most) == room


@given(
    inside=st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=40),
    others=st.lists(st.integers(0, 2**31 - 1), max_size=20),
)
def test_every_segment_has_its_own_slot_and_no_other_is_found(inside: list[int], others: list[int]) -> None:
    table = np.full(room_for(len(inside)), -1, np.int32)
    slots = []
    for segment in inside:
        slots.append(slot_of(table, segment))
        assert table[slots[-1]] == -1
        table[slots[-1]] = segment
    assert [slot_of(table, segment) for segment in inside] == slots
    for segment in set(others) - set(inside):
        assert table[slot_of(table, segment)] == -1


def test_segments_that_fall_on_the_same_slot() -> None:
    table = np.full(8, -1, np.int32)
    slots = []
    for segment in (3, 11, 19, 27):  # equal modulo 8
        slots.append(slot_of(table, segment))
        table[slots[-1]] = segment
    assert len(set(slots)) == 4
    assert table[slot_of(table, 35)] == -1
