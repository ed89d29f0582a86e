import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.config import load_config
from tedtrajrec.errors import ConfigError
from tedtrajrec.network.classes import CLASS_NUMBER
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="medium")


def dead_ends(network: RoadNetwork) -> int:
    only = np.diff(network.succ_offset) == 1
    return int((network.succ[network.succ_offset[:-1][only]] == network.twin[only]).sum())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_seed_gives_a_whole_city(seed):
    city = synthetic_city(size="small", seed=seed)
    assert 300 <= city.n_segments <= 800
    assert (strong_components(city) == 0).all()
    assert city.length_m.min() > 5


def test_sizes_differ(city):
    assert 1500 < city.n_segments < 3500
    assert synthetic_city(size="small").n_segments < city.n_segments / 3


def test_the_seed_decides_everything():
    assert synthetic_city(seed=3).hash == synthetic_city(seed=3).hash
    assert synthetic_city(seed=3).hash != synthetic_city(seed=4).hash


def test_it_has_what_a_city_has(city):
    names = ("trunk", "primary", "secondary", "tertiary", "residential")
    assert set(city.road_class) == {CLASS_NUMBER[name] for name in names}
    assert len(np.unique(city.speed_mps)) >= 4
    one_way = city.twin < 0
    assert 0.1 < one_way.mean() < 0.5
    assert one_way[city.road_class == CLASS_NUMBER["trunk"]].all()
    assert dead_ends(city) >= 10
    pairs = np.column_stack([city.seg_from, city.seg_to])
    assert len(pairs) - len(np.unique(pairs, axis=0)) >= 5  # parallel roads between the same junctions
    assert (np.diff(city.geom_offset) > 2).mean() > 0.8


def test_streets_are_curved(city):
    start, end = city.geom_offset[:-1], city.geom_offset[1:] - 1
    x, y = city.geom_xy
    straight = np.hypot(x[end] - x[start], y[end] - y[start])
    assert (city.length_m > 1.02 * straight).mean() > 0.03


def test_only_main_roads_cross_the_river(city):
    minor = np.isin(city.road_class, [CLASS_NUMBER[name] for name in ("secondary", "tertiary", "residential")])
    both_banks = city.subset(minor)
    parts = strong_components(both_banks)
    size = np.sort(np.bincount(parts, weights=both_banks.length_m))[::-1] / both_banks.length_m.sum()
    assert size[0] < 0.9  # without bridges the city falls into its two banks
    assert size[1] > 0.05


def test_it_says_that_it_is_made_up(city):
    assert "synthetic" in city.meta["source"]
    assert city.meta["seed"] == 0


def test_own_measures():
    config = CityConfig(
        radius_m=700, block_m=110, river_m=60, dead_end_share=0.0, missing_share=0.0, crescent_share=0.0
    )
    city = synthetic_city(config=config, seed=1)
    pairs = np.column_stack([city.seg_from, city.seg_to])
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert city.meta["config"] == dataclasses.asdict(config)


@pytest.mark.parametrize(
    "setting", ["radius_m=10", "block_m=5000", "river_m=0", "radials=1", "one_way_share=0.9", "dead_end_share=-0.1"]
)
def test_impossible_measures_are_refused(setting):
    with pytest.raises(ConfigError):
        load_config(CityConfig, None, [setting])
