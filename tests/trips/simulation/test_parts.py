import dataclasses
import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.stats import kstest, kurtosis

from tedtrajrec.config import load_config
from tedtrajrec.errors import ConfigError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.clock import build_clock, wave
from tedtrajrec.trips.simulation.config import CalendarConfig, NoiseConfig, Peak, RouteConfig, SimulationConfig
from tedtrajrec.trips.simulation.journeys import departure_time
from tedtrajrec.trips.simulation.noise import build_gps, draw_errors
from tedtrajrec.trips.simulation.routes import find_route, new_scratch
from tedtrajrec.trips.simulation.world import World

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small", seed=5)


# ------------------------------------------------------------------ random numbers


def test_streams_have_the_right_laws():
    stream = np.array([chance.mix(1, 2)], np.uint64)
    uniform = np.array([chance.uniform(stream) for _ in range(20_000)])
    assert kstest(uniform, "uniform").pvalue > 1e-3
    normal = np.array([chance.normal(stream) for _ in range(20_000)])
    assert kstest(normal, "norm").pvalue > 1e-3
    assert kstest([chance.exponential(stream, 3.0) for _ in range(20_000)], "expon", args=(0, 3)).pvalue > 1e-3


def test_keys_of_neighbours_are_unlike():
    key = np.uint64(chance.mix(0, 1))
    z = np.array([[chance.keyed_normal(np.uint64(key + i), j) for j in range(200)] for i in range(100)])
    assert kstest(z.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(z[:-1].ravel(), z[1:].ravel())[0, 1]) < 0.03
    assert np.abs(np.corrcoef(z[:, :-1].ravel(), z[:, 1:].ravel())[0, 1]) < 0.03


# ------------------------------------------------------------------ the clock


def test_slots_follow_the_local_clock_over_a_change():
    calendar = CalendarConfig(start="2024-03-30", days=2, time_zone="Europe/Lisbon")
    clock = build_clock(SimulationConfig(calendar=calendar))
    assert clock.start == 1711756800  # 2024-03-30 00:00 UTC, winter time
    assert clock.row[0] == 96  # a Saturday, midnight
    on_sunday = clock.row[96:188]
    assert len(set(on_sunday)) == 92  # 23 hours
    assert not {96 + 4, 96 + 5, 96 + 6, 96 + 7} & set(on_sunday)  # one o'clock is left out
    assert clock.row[188] == 0  # Monday
    assert clock.departed[188] == pytest.approx(1)
    assert (np.diff(clock.departed)[188:] == 0).all()
    assert len(set(clock.day_load[:96])) == 1
    assert clock.day_load[0] != clock.day_load[96]


def test_departure_times_invert_the_departed_share():
    clock = build_clock(SimulationConfig(calendar=CalendarConfig(days=7)))
    share = np.linspace(0, 0.999999, 500)
    time = np.array([departure_time(clock, s) for s in share])
    edges = clock.start + clock.slot_s * np.arange(len(clock.departed))
    np.testing.assert_allclose(np.interp(time, edges, clock.departed), share, atol=1e-5)


def test_waves_wrap_around_midnight():
    night = wave(Peak(hour=0.0, width_h=2.0, weekday=1.0, weekend=0.5), 60)
    assert night[0] == pytest.approx(night[23])
    assert night[24:] == pytest.approx(night[:24] / 2)


# ------------------------------------------------------------------ traffic


def test_congestion_has_a_place_a_time_and_a_direction():
    network = synthetic_city(size="medium", seed=5)
    config = load_config(SimulationConfig, CONFIGS / "demo-sim.toml")
    world = World.build(network, config)
    roads, load = world.roads, world.load
    work = world.spots.kind == 1
    x = np.average(world.spots.x[work], weights=world.spots.weight[work])
    y = np.average(world.spots.y[work], weights=world.spots.weight[work])
    start, end = np.hypot(roads.from_x - x, roads.from_y - y), np.hypot(roads.to_x - x, roads.to_y - y)
    inward, outward = end < start - 0.8 * roads.length, end > start + 0.8 * roads.length
    at = {hour: load[int(hour * 4)] for hour in (3, 8.5, 18)}
    assert at[3].max() < 0.1
    assert at[8.5].mean() > 0.3
    assert at[8.5][inward].mean() > 1.5 * at[8.5][outward].mean()
    assert at[18][outward].mean() > 1.5 * at[18][inward].mean()
    busy = np.hypot(
        roads.from_x[:, None] - world.spots.x[world.spots.kind > 0],
        roads.from_y[:, None] - world.spots.y[world.spots.kind > 0],
    ).min(axis=1)
    assert at[18][busy < 400].mean() > 1.3 * at[18][busy > 1200].mean()
    assert load[96 + 34].mean() < 0.5 * at[8.5].mean()  # weekend mornings are quiet


def test_crossings_follow_the_levels_of_roads(city):
    config = SimulationConfig()
    roads = World.build(city, config).roads
    assert (roads.stop_share[roads.level == 0] == 0).all()
    ends = (0.0, *(getattr(config.driving, kind).stop_share for kind in ("signals", "give_way", "priority", "equal")))
    assert set(roads.stop_share) == set(ends)
    residential_at_main = (roads.level == 3) & (roads.stop_share == config.driving.give_way.stop_share)
    best = np.full(city.n_nodes, 3)
    np.minimum.at(best, city.seg_from, roads.level)
    np.minimum.at(best, city.seg_to, roads.level)
    assert (best[city.seg_to[residential_at_main]] < 3).all()


# ------------------------------------------------------------------ routes


def test_routes_are_shortest_as_scipy_finds_them(city):
    agree = RouteConfig(segment_sigma=0.0, area_sigma=0.0, level_sigma=0.0, turn_s=7.0)
    world = World.build(city, SimulationConfig(route=agree))
    roads, load = world.roads, world.load[34]
    jam = 1.1 * load.astype(np.float64)
    cost = (1 + jam) * roads.length / roads.speed
    cost += (1 + world.config.driving.wait_load * jam) * roads.stop_share * roads.wait_s
    source = np.repeat(np.arange(len(city)), np.diff(city.succ_offset))
    cosine = roads.end_x[source] * roads.start_x[city.succ] + roads.end_y[source] * roads.start_y[city.succ]
    weight = cost[city.succ] + 3.5 * (1 - cosine)
    graph = csr_array((weight, city.succ, city.succ_offset), shape=(len(city), len(city)))
    seconds = dijkstra(graph)
    edge = dict(zip(zip(source, city.succ, strict=True), weight, strict=True))
    scratch = new_scratch(roads)
    rng = np.random.default_rng(0)
    for search in range(1, 300):
        a, b = rng.integers(0, len(city), 2)
        if a == b:
            continue
        n = find_route(roads, load, 1.1, world.taste, np.uint64(9), (a, 0.25), (b, 1.0), scratch, search)
        route = scratch.route[:n]
        assert (route[0], route[-1]) == (a, b)
        assert sum(edge[pair] for pair in itertools.pairwise(route)) == pytest.approx(seconds[a, b])


def test_a_destination_behind_the_origin_is_driven_to_round_the_block(city):
    world = World.build(city, SimulationConfig())
    scratch = new_scratch(world.roads)
    arguments = (world.roads, world.load[0], 1.0, world.taste, np.uint64(9))
    assert find_route(*arguments, (4, 0.2), (4, 0.7), scratch, 1) == 1
    n = find_route(*arguments, (4, 0.7), (4, 0.2), scratch, 2)
    route = scratch.route[:n]
    assert n > 2
    assert route[0] == route[-1] == 4
    assert all(b in city.successors(a) for a, b in itertools.pairwise(route))


# ------------------------------------------------------------------ GPS errors


def errors(config: NoiseConfig, step_s: int, n: int = 100_000) -> tuple[np.ndarray, np.ndarray]:
    east, north = np.empty(n), np.empty(n)
    draw_errors(build_gps(config, step_s), np.array([chance.mix(3, 4)], np.uint64), east, north)
    return east, north


@pytest.mark.parametrize("step_s", [1, 15, 60])
def test_drift_and_jitter_have_the_spread_and_correlation_asked_for(step_s):
    config = NoiseConfig(drift_m=4.0, drift_tau_s=30.0, jitter_m=3.0, sky_sigma=0.0, outlier_share=0.0)
    east, north = errors(config, step_s)
    for axis in (east, north):
        assert axis.std() == pytest.approx(5.0, rel=0.08)
        lag = np.corrcoef(axis[:-1], axis[1:])[0, 1]
        assert lag == pytest.approx(16 / 25 * np.exp(-step_s / 30), abs=0.03)
    assert abs(np.corrcoef(east, north)[0, 1]) < 0.08


def test_the_sky_makes_tails_heavy_and_outliers_jump():
    plain = NoiseConfig(sky_sigma=0.0, outlier_share=0.0)
    assert abs(kurtosis(errors(plain, 300)[0])) < 0.3
    assert kurtosis(errors(dataclasses.replace(plain, sky_sigma=0.9), 300)[0]) > 5
    jumps = NoiseConfig(drift_m=0.0, jitter_m=0.0, outlier_share=0.02, outlier_m=60.0)
    size = np.hypot(*errors(jumps, 15))
    assert (size > 0).mean() == pytest.approx(0.02, rel=0.1)
    assert size[size > 0].mean() == pytest.approx(60, rel=0.1)


# ------------------------------------------------------------------ settings


def missing_settings(cls: type, values: dict, where: str = "") -> list[str]:
    missing = []
    for field in dataclasses.fields(cls):
        if field.name not in values:
            missing.append(where + field.name)
        elif isinstance(values[field.name], dict):
            default = getattr(cls(), field.name)
            nested = type(default)
            if nested.__name__ in ("Peak", "Crossing"):
                assert set(values[field.name]) == {f.name for f in dataclasses.fields(nested)}
            else:
                missing += missing_settings(nested, values[field.name], f"{where}{field.name}.")
    return missing


def test_the_frozen_settings_leave_nothing_to_defaults():
    values = tomllib.loads((CONFIGS / "porto-sim.toml").read_text())
    assert missing_settings(SimulationConfig, values) == []
    assert load_config(SimulationConfig, CONFIGS / "porto-sim.toml").world_seed == 41


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("calendar.start=tomorrow", "start is 'tomorrow'"),
        ("calendar.time_zone=Mars/Base", "Mars/Base"),
        ("calendar.time_zone=../etc", "../etc"),
        ("calendar.days=0", "days must be"),
        ("calendar.weekday=[1.0, 2.0]", "24 values"),
        ("calendar.weekend=[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "nor all zero"),
        ("calendar.morning={hour=25.0, width_h=1.0, weekday=1.0, weekend=1.0}", "hour must be"),
        ("demand.everywhere=1.5", "everywhere must be"),
        ("demand.least_m=20000", "least_m must be less"),
        ("demand.least_minutes=40", "least_minutes must be less"),
        ("demand.by_level=[0,0,0,0]", "nor all zero"),
        ("demand.by_level=[1,1]", "takes 4"),
        ("demand.work_spots=0", "at least one spot"),
        ('demand.spots=[{lon=1.0, lat=2.0, kind="home"}]', "one of each kind"),
        ('demand.spots=[{lon=1.0, lat=2.0, kind="school"}]', "must be one of 'home'"),
        ('demand.spots=[{lon=1.0, lat=200.0, kind="home"}]', "must be degrees"),
        ("traffic.slot_minutes=7", "divide an hour"),
        ("traffic.speed_share=[0,1,1,1]", "speed_share must be"),
        ("traffic.strength=-1", "must not be negative"),
        ("traffic.direction=2", "must be 0 to 1"),
        ("traffic.patch_m=0", "must be positive"),
        ("traffic.day_sigma=3", "sigmas must be"),
        ("route.area_sigma=-0.1", "sigmas must be"),
        ("driving.speed_tau_s=0", "must be positive"),
        ("driving.driver_sigma=0.9", "must be 0 to 0.5"),
        ("driving.signals={stop_share=1.2, wait_s=3.0}", "stop_share must be"),
        ("driving.queue_m=-1", "must not be negative"),
        ("noise.drift_m=-1", "must not be negative"),
        ("noise.sky_tau_s=0", "must be positive"),
        ("noise.outlier_share=2", "must be 0 to 1"),
        ("noise.colour=pink", "Unknown setting"),
        ("noise.drift_m=big", "must be of type float"),
    ],
)
def test_impossible_settings_are_refused_by_name(setting, named):
    with pytest.raises(ConfigError, match=named.replace("[", r"\[")):
        load_config(SimulationConfig, None, [setting])
