"""Ways between candidates of neighbouring steps, against lookups in the table."""

from __future__ import annotations

import numpy as np

from tedtrajrec.methods.lattices.ways import INSIDE, INTO, LONGEST, NO_WAY, OUT_OF, Near, fill_ways
from tedtrajrec.network.near import NearTable
from tests.methods.lattices.cities import city_batch, city_builder


def test_ways_are_those_of_the_table() -> None:
    builder, batch = city_builder(), city_batch(list(range(8)))
    lattice = builder.build(batch)
    step, fixes = batch.fix_step.numpy(), batch.fix_mask.numpy().sum(axis=1)
    wanted = np.full_like(lattice.way, NO_WAY)
    kinds = set()
    for b, g in np.argwhere(batch.fix_mask.numpy()[:, 1:]):
        inside = step[b, g + 1] - step[b, g] > 1
        joined = {INSIDE: (1, 1), INTO: (0, 1), OUT_OF: (1, 2)} if inside else {INTO: (0, 2)}
        kinds |= {inside}
        for kind, (source, target) in joined.items():
            a, d = lattice.segment[b, 2 * g + source], lattice.segment[b, 2 * g + target]
            _, seconds = builder.near.lookup(a[:, None], d[None, :])
            both = lattice.exists[b, 2 * g + source][:, None] & lattice.exists[b, 2 * g + target][None, :]
            there = both & np.isfinite(seconds)
            hundredths = np.where(there, np.floor(seconds.astype(np.float64) / 0.01), NO_WAY)
            wanted[b, 3 * g + kind] = np.minimum(hundredths, LONGEST)
    assert (fixes > 2).all()
    assert kinds == {True, False}
    assert (wanted >= 0).sum() > 10_000
    np.testing.assert_array_equal(lattice.way, wanted)


def test_a_long_way_and_a_full_list() -> None:
    n = 300
    table = NearTable(
        np.arange(n + 1),
        np.roll(np.arange(n), -1).astype(np.int32),
        np.zeros(n, np.float32),
        np.full(n, 1e6, np.float32),
        1.0,
    )
    segment = np.zeros((1, 3, n), np.int64)
    segment[0, 1] = np.arange(n)
    size = np.array([[1, n, 1]])
    out = np.zeros((1, 6, n, n), np.int16)
    fill_ways(Near.of(table), segment, size, np.array([[0, 5]]), np.array([2]), 0, 1, out)
    inside = np.full((n, n), NO_WAY)
    inside[np.arange(n), np.roll(np.arange(n), -1)] = LONGEST
    np.testing.assert_array_equal(out[0, INSIDE], inside)
    assert np.argwhere(out[0, INTO] != NO_WAY).tolist() == [[0, 1]]
    assert np.argwhere(out[0, OUT_OF] != NO_WAY).tolist() == [[n - 1, 0]]
    assert (out[0, 3:] == NO_WAY).all()
