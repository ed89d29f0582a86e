"""A set of hashes is a set."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.trips.files.seen import SeenHashes


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=20), max_size=20))
def test_same_as_a_set(blocks: list[list[int]]) -> None:
    seen, known = SeenHashes(), set[int]()
    for block in blocks:
        assert seen.add(np.array(block, np.uint64)).tolist() == [value in known for value in block]
        known |= set(block)
