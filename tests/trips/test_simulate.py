import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.config import load_config
from tedtrajrec.errors import InputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_between, simulate_chunks, simulate_trips
from tedtrajrec.trips.simulation.config import NoiseConfig, RouteConfig, SimulationConfig
from tedtrajrec.trips.simulation.driving import MOST_HASTE
from tedtrajrec.trips.simulation.world import World
from tedtrajrec.trips.table import Trips, concat_trips
from tests.conftest import make_grid

CONFIGS = Path(__file__).parents[2] / "configs"
NO_NOISE = NoiseConfig(drift_m=0.0, jitter_m=0.0, outlier_share=0.0)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def config() -> SimulationConfig:
    return load_config(SimulationConfig, CONFIGS / "demo-sim.toml")


@pytest.fixture(scope="module")
def trips(city, config) -> Trips:
    return simulate_trips(city, trips=600, config=config, seed=1)


def content(trips: Trips) -> list[bytes]:
    columns = (trips.offsets, trips.time, trips.lon, trips.lat, trips.segment, trips.ratio)
    return [column.tobytes() for column in columns] + ["\n".join(trips.traj_id).encode()]


def steps(trips: Trips) -> np.ndarray:
    """Return the numbers of the fixes that have one of the same trip after them."""
    return np.setdiff1d(np.arange(trips.n_fixes), trips.offsets[1:] - 1)


def top_speed(network: RoadNetwork, config: SimulationConfig) -> np.ndarray:
    return MOST_HASTE * World.build(network, config).roads.speed


# ------------------------------------------------------------------ the promise: exact truth


def test_truth_is_on_the_network_and_fixes_are_near_it(city, trips):
    assert trips.segment.dtype == np.int32
    assert ((trips.segment >= 0) & (trips.segment < city.n_segments)).all()
    assert ((trips.ratio >= 0) & (trips.ratio <= 1)).all()
    away = short_distance_m(trips.lon, trips.lat, *city.point_at(trips.segment, trips.ratio))
    assert 3 < np.median(away) < 12


def test_steps_are_exact_and_trips_come_in_order(trips, config):
    inner = steps(trips)
    assert (trips.time[inner + 1] - trips.time[inner] == 15).all()
    departure = trips.time[trips.offsets[:-1]]
    assert (np.diff(departure) >= 0).all()
    assert departure[0] >= 1715637600  # 2024-05-14 00:00 in Berlin
    assert departure[-1] < 1715637600 + 86400
    assert len(set(trips.traj_id)) == len(trips) == 600
    minutes = (trips.lengths - 1) * 15 / 60
    assert minutes.min() >= config.demand.least_minutes
    assert minutes.max() <= config.demand.most_minutes


def test_every_step_can_be_driven(city, config, trips):
    inner = steps(trips)
    metres = Router(city).distances(
        trips.segment[inner], trips.ratio[inner], trips.segment[inner + 1], trips.ratio[inner + 1]
    )
    assert metres.max() <= 15 * top_speed(city, config).max()
    assert 0.05 < (metres < 1).mean() < 0.5  # cars stand at junctions
    assert np.percentile(metres, 90) > 60


@pytest.mark.parametrize("network", ["city", "turns"])
def test_second_by_second_only_successors_follow(network, city, config):
    if network == "turns":
        plain = make_grid(12, 12, spacing_m=150)
        pairs = np.column_stack([np.repeat(np.arange(len(plain)), np.diff(plain.succ_offset)), plain.succ])
        rng = np.random.default_rng(0)
        city = make_grid(12, 12, spacing_m=150, forbidden_turns=pairs[rng.random(len(pairs)) < 0.3])
    trips = simulate_trips(city, trips=60, step_s=1, config=config, seed=2)
    inner = steps(trips)
    a, b = trips.segment[inner], trips.segment[inner + 1]
    metres = Router(city).distances(a, trips.ratio[inner], b, trips.ratio[inner + 1])
    # In one second a car drives what the faster of the two roads lets it, over successors only (one-ways, turn rules).
    limit = np.maximum(top_speed(city, config)[a], top_speed(city, config)[b])
    assert (metres <= limit + 3).all()
    changes = a != b
    allowed = set(zip(np.repeat(np.arange(len(city)), np.diff(city.succ_offset)), city.succ, strict=True))
    direct = [pair in allowed for pair in zip(a[changes], b[changes], strict=True)]
    assert np.mean(direct) > 0.95  # the rest crosses a segment shorter than a second


def test_noise_changes_fixes_and_nothing_else(city, config, trips):
    quiet = simulate_trips(city, trips=600, config=dataclasses.replace(config, noise=NO_NOISE), seed=1)
    for name in ("offsets", "time", "segment", "ratio"):
        np.testing.assert_array_equal(getattr(quiet, name), getattr(trips, name))
    lon, lat = city.point_at(quiet.segment, quiet.ratio)
    np.testing.assert_array_equal(quiet.lon, lon)
    np.testing.assert_array_equal(quiet.lat, lat)
    assert (trips.lon != lon).all()


# ------------------------------------------------------------------ the same bytes


def test_seed_decides(city, config, trips):
    assert content(simulate_trips(city, trips=600, config=config, seed=1)) == content(trips)
    other = simulate_trips(city, trips=600, config=config, seed=2)
    assert content(other)[1:] != content(trips)[1:]


def test_trips_do_not_change_between_versions(trips):
    """Published figures rest on seeds: whoever breaks this makes them anew."""
    assert trips.lengths[:10].tolist() == [12, 15, 29, 29, 9, 31, 17, 19, 11, 18]
    assert trips.segment[:12].tolist() == [202, 204, 206, 386, 386, 386, 386, 386, 386, 387, 389, 389]
    np.testing.assert_allclose(trips.lon[:3], [9.995593191922374, 9.997361409003524, 9.999052030607208], atol=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("chunk_trips", [7, 250, 600, 9999])
def test_workers_and_chunks_do_not_matter(city, config, trips, workers, chunk_trips):
    chunks = list(simulate_chunks(city, trips=600, config=config, seed=1, chunk_trips=chunk_trips, workers=workers))
    assert [len(chunk) for chunk in chunks[:-1]] == [chunk_trips] * (len(chunks) - 1)
    assert content(concat_trips(chunks)) == content(trips)


def test_a_consumer_may_stop_early(city, config):
    chunks = simulate_chunks(city, trips=10**6, config=config, chunk_trips=100)
    assert len(next(chunks)) == 100
    chunks.close()


# ------------------------------------------------------------------ the model


def between(network, config, hour, *, times=40, step_s=15, seed=0, ends=None):
    """Simulate trips between two fixed positions that depart at an hour of Tuesday 14 May 2024, Berlin time."""
    a, b = ends or (0, network.n_segments // 2)
    departure = np.full(times, 1715637600 + int(hour * 3600))
    return simulate_between(
        network, origin=(a, 0.5), destination=(b, 0.5), departure=departure, step_s=step_s, seed=seed, config=config
    )


def test_given_ends_and_departures_are_kept(city, config):
    trips = between(city, config, 8.5)
    first, last = trips.offsets[:-1], trips.offsets[1:] - 1
    assert (trips.segment[first] == 0).all()
    assert (trips.ratio[first] == 0.5).all()
    assert (trips.segment[last] == city.n_segments // 2).all()
    assert (trips.ratio[last] == 0.5).all()
    assert (trips.time[first] == 1715637600 + 8.5 * 3600).all()
    assert len(set(trips.lengths)) > 1  # drivers differ


def test_rush_hour_is_slower_than_night(city, config):
    night, rush = (between(city, config, hour, step_s=1).lengths.mean() for hour in (3.5, 18.2))
    assert rush > 1.25 * night


def two_roads() -> RoadNetwork:
    """Return a main road and a quiet one a third longer beside it, both from west to east; and a way back."""
    lon = 10 + np.array([0, 0.002, 0.015, 0.028, 0.030])
    nodes = np.array([[lon[0], 50], [lon[1], 50], [lon[3], 50], [lon[4], 50]])
    lines = [
        (0, 1, [], "primary"),
        (1, 2, [], "primary"),
        (1, 2, [[lon[2], 50.007]], "tertiary"),
        (2, 3, [], "primary"),
        (3, 0, [[lon[2], 49.999]], "primary"),
    ]
    geometry = [np.vstack([nodes[a], *[np.array([p]) for p in via], nodes[b]]) for a, b, via, _ in lines]
    lonlat = np.vstack(geometry)
    return RoadNetwork.build(
        node_lon=nodes[:, 0],
        node_lat=nodes[:, 1],
        node_id=np.arange(4),
        seg_from=[a for a, *_ in lines],
        seg_to=[b for _, b, *_ in lines],
        road_class=[{"primary": 4, "tertiary": 8}[kind] for *_, kind in lines],
        speed_mps=[13.0, 13.0, 13.0, 13.0, 13.0],
        geom_offset=np.concatenate([[0], np.cumsum([len(g) for g in geometry])]),
        geom_lon=lonlat[:, 0],
        geom_lat=lonlat[:, 1],
    )


def test_routes_depend_on_the_clock():
    settings = ["calendar.start=2024-05-14", "calendar.time_zone=Europe/Berlin", "calendar.days=1"]
    quiet_road = "traffic.exposure=[1.0, 1.2, 0.1, 0.1]"
    config = load_config(SimulationConfig, None, [*settings, quiet_road])
    network = two_roads()
    shares = []
    for hour in (3.5, 18.2):
        trips = between(network, config, hour, times=200, step_s=1, ends=(0, 3))
        quiet = np.unique(trips.trip_of_fix[trips.segment == 2])
        main = np.unique(trips.trip_of_fix[trips.segment == 1])
        assert len(quiet) + len(main) == 200
        shares.append(len(quiet) / 200)
    assert shares[0] < 0.2
    assert shares[1] > 0.6


def test_drivers_choose_unlike_routes_unless_they_agree(city, config):
    def routes(setting: SimulationConfig) -> int:
        trips = between(city, setting, 10, step_s=2)
        return len(
            {tuple(np.unique(trips.segment[a:b])) for a, b in zip(trips.offsets, trips.offsets[1:], strict=False)}
        )

    agree = RouteConfig(segment_sigma=0.0, area_sigma=0.0, level_sigma=0.0)
    assert routes(config) > 3
    assert routes(dataclasses.replace(config, route=agree)) <= 3  # a segment shorter than 2 s may fall between steps


def test_flows_reverse_between_morning_and_evening(city, config):
    trips = simulate_trips(city, trips=3000, config=config)
    spots = World.build(city, config).spots
    work = spots.kind == 1
    hour = (trips.time[trips.offsets[:-1]] + 7200) // 3600 % 24

    def near_work(fix: np.ndarray) -> float:
        x, y = city.plane.to_xy(*city.point_at(trips.segment[fix], trips.ratio[fix]))
        return float((np.hypot(x[:, None] - spots.x[work], y[:, None] - spots.y[work]).min(axis=1) < 250).mean())

    first, last = trips.offsets[:-1], trips.offsets[1:] - 1
    morning, evening = (hour == 8), (hour == 18)
    assert near_work(last[morning]) > 1.2 * near_work(first[morning])
    assert near_work(first[evening]) > 1.2 * near_work(last[evening])


def test_departures_follow_the_hourly_profile(city, config):
    trips = simulate_trips(city, trips=3000, config=config)
    hour = (trips.time[trips.offsets[:-1]] + 7200) // 3600 % 24
    wanted = np.array(config.calendar.weekday) / sum(config.calendar.weekday) * 3000
    assert np.abs(np.bincount(hour, minlength=24) - wanted).max() <= 2  # stratified, hence nearly exact


# ------------------------------------------------------------------ failing well


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trips": 0}, "trips is 0"),
        ({"trips": 5, "step_s": 0}, "step_s is 0"),
        ({"trips": 5, "step_s": 1000}, "at most 600"),
        ({"trips": 5, "seed": -1}, "seed is -1"),
        ({"trips": 5}, "none gave a trip of 400 to 14000 m"),
    ],
)
def test_what_cannot_be_simulated_is_said_so(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate_trips(make_grid(3, 3), **arguments)


def test_a_network_of_one_way_ends_is_hopeless(config):
    network = make_grid(2, 2, one_way_row=0).subset([0])  # a single one-way street
    with pytest.raises(InputError, match="none gave a trip"):
        simulate_trips(network, trips=3, config=config)


def test_a_network_of_motorways_only_is_hopeless(tiny_city, config):
    motorways = dataclasses.replace(tiny_city, road_class=np.zeros(len(tiny_city), np.uint8))
    with pytest.raises(InputError, match="no connected roads of the levels"):
        simulate_trips(motorways, trips=3, config=config)


def test_spots_of_another_city_are_refused(city):
    porto = load_config(SimulationConfig, CONFIGS / "porto-sim.toml")
    with pytest.raises(InputError, match="outside the road network"):
        simulate_trips(city, trips=3, config=porto)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"origin": (10**6, 0.5)}, "column 'origin': segments go from 0"),
        ({"destination": (-1, 0.5)}, "column 'destination': segments go from 0"),
        ({"origin": (0, 1.5)}, "ratios go from 0 to 1"),
        ({"departure": 0}, "outside the 1 days"),
        ({"departure": np.zeros(0, int), "origin": ([], []), "destination": ([], [])}, "no trips"),
    ],
)
def test_bad_given_trips_are_refused(city, config, change, message):
    arguments = {"origin": (0, 0.5), "destination": (9, 0.5), "departure": 1715637600, **change}
    with pytest.raises(InputError, match=message):
        simulate_between(city, config=config, **arguments)


def test_any_time_of_the_calendar_can_be_given(city, config):
    only_at_noon = tuple(float(hour == 12) for hour in range(24))
    calendar = dataclasses.replace(config.calendar, weekday=only_at_noon)
    config = dataclasses.replace(config, calendar=calendar)
    trips = between(city, config, 23.5)
    assert (trips.time[trips.offsets[:-1]] == 1715637600 + 23.5 * 3600).all()


def test_given_ends_without_a_route_are_refused(config):
    network = make_grid(3, 1, one_way_row=0)
    with pytest.raises(InputError, match="trip 0: no route leads"):
        simulate_between(network, origin=(1, 0.5), destination=(0, 0.5), departure=1715637600, config=config)


# ------------------------------------------------------------------ the real city


@pytest.mark.real
def test_porto_is_like_porto(porto):
    config = load_config(SimulationConfig, CONFIGS / "porto-sim.toml")
    trips = simulate_trips(porto, trips=1000, config=config, seed=3)
    assert 42 < trips.lengths.mean() < 55  # real: 46
    away = CandidateFinder(porto).nearest(trips.lon, trips.lat).distance_m
    assert 2.4 < np.median(away) < 3.4  # real: 2.9 m
    assert 15 < np.percentile(away, 95) < 23  # real: 19 m
