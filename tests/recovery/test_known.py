"""What is told of trips that are unlike those a model was trained on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tedtrajrec import Recoverer
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.shipped import shipped_models
from tedtrajrec.recovery.known import compare
from tedtrajrec.training.profile import Profile, read_profile
from tedtrajrec.trips.table import Trips
from tests.recovery.test_recoverer import sparse_trips


@pytest.fixture(scope="module")
def sparse(recovery_dataset: Dataset) -> Trips:
    return sparse_trips(recovery_dataset)


def test_trips_like_those_of_training_give_no_word(model: Recoverer, untrained: Recoverer, sparse: Trips) -> None:
    assert model.check(sparse) == []
    assert untrained.check(sparse) == []
    assert model.check(sparse.select([])) == []
    assert model.check(sparse.replace(lon=np.full(sparse.n_fixes, np.nan))) == []


def test_another_area(model: Recoverer, untrained: Recoverer, sparse: Trips) -> None:
    away = sparse.replace(lon=sparse.lon + 0.5)
    for recoverer in (model, untrained):
        (told,) = recoverer.check(away)
        assert told.startswith("100% of the fixes lie outside the area of the road network")


def test_another_area_is_explained(untrained: Recoverer, sparse: Trips) -> None:
    told, *_ = untrained.check(sparse.replace(lon=sparse.lat, lat=sparse.lon))
    assert told.endswith("): they lie inside if lon and lat are exchanged.")
    (told,) = untrained.check(sparse.replace(lon=sparse.lon + 0.5))
    assert told.endswith("): is this the network of their city?")
    told, *_ = untrained.check(sparse.replace(lon=np.where(np.arange(sparse.n_fixes) % 10 == 0, -9.9, sparse.lon)))
    assert told.startswith("10%")
    assert told.endswith(").")


def test_a_part_of_the_network_without_training_trips(model: Recoverer, sparse: Trips) -> None:
    profile = model.profile
    assert profile is not None
    west, south, _, north = profile.bbox
    half = dataclasses.replace(profile, bbox=(west, south, float(np.median(sparse.lon)), north))
    (told,) = compare(sparse, model.network, half)
    assert "outside the area of the trips that the model was trained on" in told
    assert told.startswith(("4", "5"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"interval_s": (600.0, 600.0, 900.0, 1200.0, 1200.0)}, "trained with 15.0 min, nearly always 10.0 min to"),
        ({"interval_s": (1.0, 1.0, 20.0, 900.0, 900.0)}, "trained with 20 s."),
        ({"speed_mps": (0.1, 0.1, 1.0, 40.0, 40.0)}, "those of the training trips at 4 km/h"),
        ({"speed_mps": (0.1, 0.1, 1.0, 2.0, 2.0)}, "those of the training trips at 4 km/h"),
    ],
)
def test_other_intervals_and_speeds(model: Recoverer, sparse: Trips, change: dict[str, object], words: str) -> None:
    profile = model.profile
    assert profile is not None
    (told,) = compare(sparse, model.network, dataclasses.replace(profile, **change))  # type: ignore[arg-type]
    assert words in told


def test_impossible_speeds_hint_at_the_columns(untrained: Recoverer, sparse: Trips) -> None:
    start = np.repeat(sparse.time[sparse.offsets[:-1]], sparse.lengths)
    (told,) = untrained.check(sparse.replace(time=start + (sparse.time - start) // 20))
    assert "more than 150 km/h" in told


def test_a_card_alone_says_little(sparse: Trips, model: Recoverer) -> None:
    assert compare(sparse, model.network, Profile(15, "UTC", "abc")) == []


def test_the_profile_of_the_shipped_model() -> None:
    for folder in shipped_models().values():
        profile = read_profile(folder)
        assert profile.trips > 0
        assert len(profile.bbox) == 4
