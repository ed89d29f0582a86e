import itertools

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.network import polylines

sizes = st.lists(st.integers(2, 6), min_size=1, max_size=8)


@given(sizes, st.integers(0, 2**32))
def test_measure_starts_each_polyline_at_zero_and_never_falls(counts, seed):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    lon, lat = rng.uniform(-0.01, 0.01, (2, offsets[-1]))
    along = polylines.measure(offsets, lon, lat)
    for start, end in itertools.pairwise(offsets):
        assert along[start] == pytest.approx(0.0, abs=1e-9)
        assert (np.diff(along[start:end]) >= 0).all()
    # near the equator a degree is the same in both directions to 0.7 %
    lines = [shapely.LineString(np.column_stack([lon[a:b], lat[a:b]])) for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(polylines.lengths(offsets, along) / 111_000, [line.length for line in lines], rtol=0.01)


@given(sizes, st.integers(0, 2**32), st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_locate_finds_the_piece_that_holds_the_position(counts, seed, ratios):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    along = np.concatenate([np.concatenate([[0], np.cumsum(rng.integers(0, 3, n - 1))]) for n in counts]).astype(float)
    which = rng.integers(0, len(counts), len(ratios))
    vertex, share = polylines.locate(offsets, along, which, np.array(ratios))
    assert ((vertex >= offsets[which]) & (vertex < offsets[which + 1] - 1)).all()
    reached = along[vertex] + share * (along[vertex + 1] - along[vertex])
    np.testing.assert_allclose(reached, np.array(ratios) * along[offsets[which + 1] - 1], atol=1e-9)


def test_ranges():
    np.testing.assert_array_equal(polylines.ranges(np.array([5, 0, 9]), np.array([2, 0, 3])), [5, 6, 9, 10, 11])
    assert len(polylines.ranges(np.array([3]), np.array([0]))) == 0
