import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.links import Links, with_links
from tedtrajrec.network.reach import GAPS_PER_PART, Band, Gaps, GapSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid
from tests.network.test_near import broken_grid, gap_costs


def one_gap(a, b, seconds=120.0):
    """Return a single gap between positions (segment, ratio, extra seconds)."""
    columns = []
    for ends in (a, b):
        segment, ratio, extra = zip(*[(*end, 0.0)[:3] for end in ends], strict=True)
        columns += [np.array([0, len(ends)]), np.array(segment, np.int32), np.array(ratio), np.array(extra, float)]
    return Gaps(np.array([float(seconds)]), *columns)


def random_gaps(n_segments, n, rng, ends=3):
    columns = []
    for _ in range(2):
        offset = np.concatenate([[0], np.cumsum(rng.integers(1, ends + 1, n))])
        size = offset[-1]
        columns += [offset, rng.integers(0, n_segments, size).astype(np.int32), rng.random(size), 30 * rng.random(size)]
    return Gaps(rng.uniform(30, 200, n), *columns)


def ends_of(gaps, g):
    a, b = slice(*gaps.a_offset[g : g + 2]), slice(*gaps.b_offset[g : g + 2])
    return (
        list(zip(gaps.a_segment[a], gaps.a_ratio[a], gaps.a_extra_s[a], strict=True)),
        list(zip(gaps.b_segment[b], gaps.b_ratio[b], gaps.b_extra_s[b], strict=True)),
    )


def best_ways(network, cost, gap, a, b, back_m):
    """Return the total of the best way over each segment [S], from the definition."""
    n = len(network)
    came, goes = np.full(n, np.inf), np.full(n, np.inf)
    for segment, ratio, extra in a:
        came = np.minimum(came, (1 - ratio) * cost[segment] + extra + gap[segment])
    for segment, ratio, extra in b:
        goes = np.minimum(goes, ratio * cost[segment] + extra + gap[:, segment])
    total = came + cost + goes
    for segment, ratio, extra in a:
        total[segment] = min(total[segment], (1 - ratio) * cost[segment] + extra + goes[segment])
    for segment, ratio, extra in b:
        total[segment] = min(total[segment], came[segment] + ratio * cost[segment] + extra)
    for segment, ratio, extra in a:
        for other, other_ratio, other_extra in b:
            if segment == other and (ratio - other_ratio) * network.length_m[segment] <= back_m:
                drive = max((other_ratio - ratio) * cost[segment], 0)
                total[segment] = min(total[segment], drive + extra + other_extra)
    return total


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([3, 10, 1000]), st.sampled_from([0.0, 20.0, 90.0]))
def test_the_segments_of_a_gap_are_those_of_the_definition(seed, most, band_s):
    rng = np.random.default_rng(seed)
    network = broken_grid(seed)
    cost = network.length_m * rng.uniform(0.05, 0.5, len(network))
    gaps = random_gaps(len(network), 20, rng)
    band = Band(band_s=band_s, band_share=0.3, horizon_s=100.0, horizon_share=1.0, slack_m=10_000.0)
    found = GapSearch(network, cost).search(gaps, most=most, band=band)
    gap = gap_costs(network, cost)
    for g in range(20):
        a, b = ends_of(gaps, g)
        total = best_ways(network, cost, gap, a, b, band.back_m)
        horizon = 100 + gaps.seconds[g] + min(end[2] for end in a) + min(end[2] for end in b)
        part = slice(*found.offset[g : g + 2])
        if total.min() > horizon:
            assert np.isinf(found.best_s[g])
            assert (found.reached[part] < 3).all()
            continue
        best = total.min()
        limit = min(best + max(band_s, 0.3 * best), horizon)
        assert found.best_s[g] == pytest.approx(best)
        assert (found.reached[part] == 3).all()
        # All segments of one way have the same total up to rounding: their order says nothing.
        segment = found.segment[part]
        assert len(np.unique(segment)) == len(segment)
        assert min(most, (total < limit - 1e-6).sum()) <= len(segment) <= min(most, (total < limit + 1e-6).sum())
        np.testing.assert_allclose(total[segment], np.sort(total)[: len(segment)], rtol=1e-9, atol=1e-6)
        drive = found.before_s[part] + cost[segment] + found.after_s[part]
        still = np.intersect1d([end[0] for end in a], [end[0] for end in b])
        on_the_way = ~np.isin(segment, still)  # standing still a little backwards counts as no time
        np.testing.assert_allclose(drive[on_the_way], total[segment][on_the_way], rtol=1e-5, atol=1e-4)
