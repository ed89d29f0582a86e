"""The matcher as users call it: hand-made cases on a grid, presets, workers, and simulated trips with known truth."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import ENDS, STATUS, MatchConfig, Matched, Matcher, match
from tedtrajrec.trips.table import Trips, concat_trips
from tests.conftest import make_grid

EXACT = MatchConfig(noise_m=5.0)
LON0, LAT0 = -8.62, 41.15
PER_LON, PER_LAT = 83_956.0, 111_074.0


def trip(points: Sequence[tuple[float, float, float]], name: str = "a") -> Trips:
    """Return one trip of (seconds, metres east, metres north) of the grid's first node."""
    time, x, y = np.array(points).T
    return Trips.from_columns(
        np.full(len(time), name), 1_700_000_000 + time.astype(np.int64), LON0 + x / PER_LON, LAT0 + y / PER_LAT
    )


def segment_between(network: RoadNetwork, a: tuple[int, int], b: tuple[int, int], columns: int = 6) -> int:
    """Return the segment from node (column, row) a to node b."""
    start, end = a[1] * columns + a[0], b[1] * columns + b[0]
    return int(np.flatnonzero((network.seg_from == start) & (network.seg_to == end))[0])


def path(network: RoadNetwork, *nodes: tuple[int, int]) -> list[int]:
    return [segment_between(network, a, b) for a, b in itertools.pairwise(nodes)]


def is_drivable(network: RoadNetwork, matched: Matched) -> bool:
    pieces = range(len(matched.piece_ends))
    return all(b in network.successors(a) for p in pieces for a, b in itertools.pairwise(matched.route(p)))


def test_a_drive_round_a_corner(tiny_city: RoadNetwork) -> None:
    fixes = [(0, 20, 3), (10, 120, -4), (20, 203, 20), (30, 198, 120), (40, 201, 180)]
    matched = match(trip(fixes), tiny_city, EXACT)
    expected = path(tiny_city, (0, 0), (1, 0), (2, 0), (2, 1), (2, 2))
    assert matched.route(0).tolist() == expected
    assert matched.segment.tolist() == [expected[0], expected[1], expected[2], expected[3], expected[3]]
    np.testing.assert_allclose(matched.ratio, [0.2, 0.2, 0.2, 0.2, 0.8], atol=0.01)
    np.testing.assert_allclose(matched.distance_m, [3, 4, 3, 2, 1], atol=0.1)
    lon, lat = tiny_city.point_at(matched.segment, matched.ratio)
    np.testing.assert_allclose(matched.lon, lon)
    np.testing.assert_allclose(matched.lat, lat)
    assert [STATUS[s] for s in matched.status] == ["matched"] * 5
    assert [ENDS[e] for e in matched.piece_ends] == ["end_of_trip"]


def test_times_along_the_route(tiny_city: RoadNetwork) -> None:
    matched = match(trip([(0, 50, 0), (20, 250, 0), (30, 350, 0)]), tiny_city, EXACT)
    start = 1_700_000_000
    np.testing.assert_allclose(matched.route_enter - start, [0, 5, 15, 25], atol=0.01)
    np.testing.assert_allclose(matched.route_leave - start, [5, 15, 25, 30], atol=0.01)


def test_a_one_way_street_is_not_driven_backwards() -> None:
    network = make_grid(one_way_row=2)
    # Westwards 12 m north of the row that runs east only: the truth is unknown, but not that.
    matched = match(trip([(0, 480, 212), (15, 380, 212), (30, 280, 212), (45, 180, 212)]), network, EXACT)
    assert is_drivable(network, matched)
    east = {segment_between(network, (c, 2), (c + 1, 2)) for c in range(5)}
    assert sum(s in east for s in matched.segment) < 4


def test_parallel_roads_are_told_apart_by_the_whole_trip() -> None:
    # Streets 30 m apart; one fix is nearer to the wrong one.
    network = make_grid(spacing_m=30.0, one_way_row=None, columns=12, rows=3)
    fixes = [(5 * i, 15 + 30 * i, 18 if i == 5 else 2) for i in range(11)]
    matched = match(trip(fixes), network, MatchConfig(noise_m=10.0, thin=0.0))
    assert matched.route(0).tolist() == [segment_between(network, (c, 0), (c + 1, 0), 12) for c in range(11)]
    assert matched.probability[5] < 1.0


def test_a_turn_restriction_is_respected() -> None:
    network = make_grid()
    into, out = path(network, (1, 0), (2, 0), (2, 1))
    fixes = trip([(0, 120, 1), (10, 180, -1), (30, 201, 30), (40, 199, 80)])
    assert match(fixes, network, EXACT).route(0).tolist() == [into, out]
    restricted = make_grid(forbidden_turns=np.array([[into, out]]))
    matched = match(fixes, restricted, EXACT)
    assert is_drivable(restricted, matched)
    route = matched.route(0).tolist()
    assert (into, out) not in itertools.pairwise(route)


def test_standing_with_jitter_is_not_a_loop(tiny_city: RoadNetwork) -> None:
    rng = np.random.default_rng(1)
    jitter = [(60 + i, 250 + rng.normal(0, 4), rng.normal(0, 4)) for i in range(120)]
    matched = match(trip([(0, 20, 0), (30, 150, 2), *jitter, (200, 380, 1)]), tiny_city, MatchConfig(noise_m=4.0))
    assert matched.route(0).tolist() == path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0))
    assert (matched.segment >= 0).all()
    assert (np.diff(matched.route_enter) >= 0).all()
    assert (matched.route_leave >= matched.route_enter).all()
    assert STATUS[matched.status[50]] == "followed"


def test_a_u_turn_where_the_network_has_them() -> None:
    network = make_grid(u_turns=True)
    out = segment_between(network, (0, 0), (1, 0)), segment_between(network, (1, 0), (2, 0))
    back = segment_between(network, (2, 0), (1, 0)), segment_between(network, (1, 0), (0, 0))
    fixes = [(0, 20, 0), (10, 110, 0), (20, 190, 0), (40, 110, 0), (50, 20, 0)]
    matched = match(trip(fixes), network, dataclasses.replace(EXACT, u_turn_m=30.0))
    assert matched.route(0).tolist() == [*out, *back]


def test_a_gap_of_minutes_is_bridged(tiny_city: RoadNetwork) -> None:
    matched = match(trip([(0, 20, 0), (10, 110, 0), (250, 420, 0), (260, 480, 0)]), tiny_city, EXACT)
    assert matched.route(0).tolist() == path(tiny_city, *[(c, 0) for c in range(6)])


def test_a_fix_off_the_map_is_left_out(tiny_city: RoadNetwork) -> None:
    matched = match(trip([(0, 20, 0), (10, 110, 0), (20, 200, -5000), (30, 310, 0)]), tiny_city, EXACT)
    assert [STATUS[s] for s in matched.status] == ["matched", "matched", "off_map", "matched"]
    assert matched.segment[2] == -1
    assert np.isnan(matched.ratio[2])
    assert matched.probability[2] == 0
    assert len(matched.piece_ends) == 1


def test_a_jump_is_reported(tiny_city: RoadNetwork) -> None:
    here = [(i, 20 + 10 * i, 0) for i in range(0, 20, 2)]
    there = [(22 + i, 20 + 10 * i, 500) for i in range(0, 20, 2)]
    config = dataclasses.replace(EXACT, top_speed_mps=40.0)
    matched = match(trip([*here, *there]), tiny_city, config)
    assert [ENDS[e] for e in matched.piece_ends] == ["too_fast", "end_of_trip"]
    assert matched.piece[0] == 0
    assert matched.piece[-1] == 1
    assert (matched.segment >= 0).all()


def test_no_route_is_reported() -> None:
    one_way = make_grid(columns=6, rows=1, one_way_row=0)
    matched = match(trip([(0, 450, 0), (60, 350, 0), (120, 250, 0)]), one_way, EXACT)
    assert [ENDS[e] for e in matched.piece_ends] == ["no_route", "no_route", "end_of_trip"]


def test_every_fix_of_a_missing_road_has_a_place() -> None:
    # The street has been made one-way since: 100 m every 15 s the wrong way, and no way round.
    one_way = make_grid(columns=6, rows=1, one_way_row=0)
    matched = match(trip([(15 * i, 480 - 100 * i, 2) for i in range(5)]), one_way, EXACT)
    assert matched.segment.tolist() == [segment_between(one_way, (c, 0), (c + 1, 0)) for c in (4, 3, 2, 1, 0)]
    assert [ENDS[e] for e in matched.piece_ends] == ["no_route"] * 4 + ["end_of_trip"]
    assert matched.distance_m.max() < 3


def test_a_break_is_paid_once_and_the_fixes_around_it_stay(tiny_city: RoadNetwork) -> None:
    # Two rows of a grid, 400 m apart, with 15 s between them: no road is that short.
    here = [(15 * i, 20 + 100 * i, 2) for i in range(4)]
    there = [(15 * (4 + i), 390 - 100 * i, 402) for i in range(4)]
    matched = match(trip([*here, *there]), tiny_city, EXACT)
    assert [ENDS[e] for e in matched.piece_ends] == ["no_route", "end_of_trip"]
    assert matched.piece.tolist() == [0] * 4 + [1] * 4
    assert matched.distance_m.max() < 3
    assert is_drivable(tiny_city, matched)


def test_a_fix_that_fits_nowhere_is_left_out(tiny_city: RoadNetwork) -> None:
    fixes = [(15 * i, 20 + 100 * i, 0.0) for i in range(5)]
    fixes[2] = (30, 220, 500)
    # It stays a moment at the wrong place.
    fixes.insert(3, (33, 222, 500))
    matched = match(trip(fixes), tiny_city, EXACT)
    assert [STATUS[s] for s in matched.status] == ["matched"] * 2 + ["no_route"] * 2 + ["matched"] * 2
    assert matched.segment[2:4].tolist() == [-1, -1]
    assert matched.probability[2:4].tolist() == [0, 0]
    assert [ENDS[e] for e in matched.piece_ends] == ["end_of_trip"]
    assert matched.route(0).tolist() == path(tiny_city, *[(c, 0) for c in range(6)])[:5]


def test_who_waits_before_a_crossing_is_before_it(tiny_city: RoadNetwork) -> None:
    # 8 m before the crossing at 200 m; noise of 5 m carries single fixes past it.
    rng = np.random.default_rng(3)
    waiting = [(20 + 5 * i, 192 + rng.normal(0, 5), rng.normal(0, 5)) for i in range(12)]
    assert max(x for _, x, _ in waiting) > 199
    matched = match(trip([(0, 20, 0), *waiting, (95, 290, 0)]), tiny_city, EXACT)
    before = segment_between(tiny_city, (1, 0), (2, 0))
    assert (matched.segment[1:13] == before).all()
    np.testing.assert_allclose(matched.ratio[4:10], 0.92, atol=0.05)


def test_a_long_gap_breaks_the_trip(tiny_city: RoadNetwork) -> None:
    matched = match(trip([(0, 20, 0), (10, 110, 0), (9000, 120, 0), (9010, 210, 0)]), tiny_city, EXACT)
    assert [ENDS[e] for e in matched.piece_ends] == ["long_gap", "end_of_trip"]


def test_fixes_of_one_second(tiny_city: RoadNetwork) -> None:
    matched = match(trip([(0, 20, 0), (10, 110, 0), (10, 150, 0), (20, 210, 0)]), tiny_city, EXACT)
    assert (matched.segment >= 0).all()
    assert len(matched.piece_ends) == 1


def test_times_that_run_backwards_are_refused(tiny_city: RoadNetwork) -> None:
    with pytest.raises(InputError, match="earlier"):
        match(trip([(0, 20, 0), (10, 110, 0), (5, 150, 0)]), tiny_city)


@pytest.mark.parametrize("points", [[], [(0, 150.0, 4.0)]])
def test_few_fixes(tiny_city: RoadNetwork, points: list[tuple[float, float, float]]) -> None:
    one = trip([(0, 150, 4)])
    trips = one if points else one.keep_fixes(np.zeros(1, bool))
    matched = match(trips, tiny_city)
    assert len(matched.segment) == len(points)
    assert matched.piece_offsets.tolist() == [0, len(points)]
    nothing = match(one.select([]), tiny_city)
    assert nothing.piece_offsets.tolist() == [0]


def random_trips(
    network: RoadNetwork, count: int, *, seed: int, noise_m: float, step_s: int = 15
) -> tuple[Trips, Trips]:
    """Return trips of random drives at 8 m/s with noise, and the same with exact positions, segment and ratio."""
    rng = np.random.default_rng(seed)
    exact = []
    for k in range(count):
        route = [int(rng.integers(network.n_segments))]
        while len(route) < 25:
            following = network.successors(route[-1])
            following = following[network.twin[route[-1]] != following]
            straight_on = following[(following - route[-1]) % 2 == 0]
            choice = straight_on if len(straight_on) and rng.random() < 0.6 else following
            route.append(int(rng.choice(choice)))
        ends = np.cumsum(network.length_m[route])
        at = np.arange(5.0, ends[-1], 8.0 * step_s)
        where = np.searchsorted(ends, at, side="right")
        segment = np.array(route)[where]
        ratio = 1 - (ends[where] - at) / network.length_m[segment]
        lon, lat = network.point_at(segment, ratio)
        time = 1_700_000_000 + step_s * np.arange(len(at))
        exact.append(Trips.from_columns(np.full(len(at), f"t{k}"), time, lon, lat, segment=segment, ratio=ratio))
    truth = concat_trips(exact)
    lon = truth.lon + rng.normal(0, noise_m, truth.n_fixes) / PER_LON
    lat = truth.lat + rng.normal(0, noise_m, truth.n_fixes) / PER_LAT
    return truth.replace(lon=lon, lat=lat, segment=None, ratio=None), truth


@pytest.mark.parametrize(("noise_m", "least"), [(3.0, 0.93), (10.0, 0.85)])
def test_the_truth_is_recovered(tiny_city: RoadNetwork, noise_m: float, least: float) -> None:
    trips, truth = random_trips(tiny_city, 40, seed=2, noise_m=noise_m)
    assert truth.segment is not None
    matched = match(trips, tiny_city)
    assert np.mean(matched.segment == truth.segment) > least
    assert is_drivable(tiny_city, matched)


def same(a: Matched, b: Matched) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name), equal_nan=True) for f in dataclasses.fields(a))


def test_workers_do_not_change_the_result(tiny_city: RoadNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedtrajrec.trips.match.CHUNK", 64)
    trips, _ = random_trips(tiny_city, 40, seed=3, noise_m=8.0)
    one = Matcher(tiny_city).match(trips, workers=1)
    assert same(one, Matcher(tiny_city).match(trips, workers=3))
    warm = Matcher(tiny_city)
    warm.match(trips.select(np.arange(20)))
    assert same(one, warm.match(trips))


def test_other_trips_do_not_change_the_result(tiny_city: RoadNetwork) -> None:
    trips, _ = random_trips(tiny_city, 12, seed=4, noise_m=8.0)
    together = match(trips, tiny_city)
    order = np.random.default_rng(0).permutation(12)
    shuffled = match(trips.select(order), tiny_city)
    for place, number in enumerate(order):
        rows = slice(trips.offsets[number], trips.offsets[number + 1])
        start = int(trips.lengths[order[:place]].sum())
        other = slice(start, start + trips.lengths[number])
        assert np.array_equal(together.segment[rows], shuffled.segment[other])
        assert np.array_equal(together.probability[rows], shuffled.probability[other])


@pytest.mark.parametrize("name", ["nk09", "song12", "default"])
def test_presets(tiny_city: RoadNetwork, name: str) -> None:
    matched = match(trip([(0, 20, 1), (10, 120, -1), (20, 180, 2), (30, 201, 60)]), tiny_city, MatchConfig.preset(name))
    assert matched.route(0).tolist() == path(tiny_city, (0, 0), (1, 0), (2, 0), (2, 1))


def test_song12_moves_backwards_for_free_and_nk09_breaks_or_loops(tiny_city: RoadNetwork) -> None:
    fixes = trip([(0, 20, 0), (10, 180, 0), (20, 120, 0), (30, 180, 0)])
    song = match(fixes, tiny_city, MatchConfig.preset("song12"))
    assert song.route(0).tolist() == path(tiny_city, (0, 0), (1, 0), (2, 0))
    assert len(song.piece_ends) == 1
    newson = match(fixes, tiny_city, MatchConfig.preset("nk09"))
    assert newson.route_segment.tolist() != song.route_segment.tolist()


def test_unknown_preset() -> None:
    with pytest.raises(ConfigError, match="nk09"):
        MatchConfig.preset("best")


@pytest.mark.parametrize("change", [{"noise_m": 0.0}, {"tail": -1.0}, {"thin": -1.0}, {"most_candidates": 0}])
def test_bad_settings(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        MatchConfig(**change)  # type: ignore[arg-type]


def test_probabilities(tiny_city: RoadNetwork) -> None:
    trips, _ = random_trips(tiny_city, 20, seed=5, noise_m=15.0)
    matched = match(trips, tiny_city, MatchConfig(noise_m=15.0))
    assert np.isfinite(matched.probability).all()
    assert matched.probability.min() > 0
    assert matched.probability.max() <= 1 + 1e-12
    assert matched.probability.mean() < 0.999
