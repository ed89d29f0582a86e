import heapq

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.network.heap import pop, push

# Few distinct keys, so that ties are common.
ENTRIES = st.tuples(st.integers(0, 5).map(lambda key: key / 3), st.integers(0, 9))


def empty(room):
    return np.empty(room), np.empty(room, np.int32), 0


def test_entries_come_out_by_key_and_then_by_item():
    keys, items, size = empty(5)
    for key, item in [(2.0, 7), (1.0, 9), (2.0, 3), (1.0, 4), (0.5, 8)]:
        size = push(keys, items, size, key, item)
    out = []
    while size:
        out.append((keys[0], items[0]))
        size = pop(keys, items, size)
    assert out == [(0.5, 8), (1.0, 4), (1.0, 9), (2.0, 3), (2.0, 7)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(ENTRIES, st.none()), max_size=60))
def test_any_mix_of_pushes_and_pops_behaves_like_heapq(steps):
    keys, items, size = empty(len(steps))
    other: list[tuple[float, int]] = []
    for entry in steps:
        if entry is not None:
            size = push(keys, items, size, *entry)
            heapq.heappush(other, entry)
        elif other:
            assert (keys[0], items[0]) == heapq.heappop(other)
            size = pop(keys, items, size)
        assert size == len(other)
