"""A run tells what it was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.training.profile import Profile, make_profile, motion, read_profile, write_profile
from tedtrajrec.trips.table import Trips, as_text


def test_what_is_written_is_read(small_dataset: Dataset, tmp_path: Path) -> None:
    written = write_profile(tmp_path, small_dataset, ["1/8", "1/16"])
    assert read_profile(tmp_path) == written
    assert RoadNetwork.load(tmp_path / "network.npz").hash == small_dataset.network.hash
    assert (written.step_s, written.time_zone, written.trips) == (15, "Europe/Berlin", 20)
    assert written.keep == ("1/8", "1/16")


def test_the_numbers_are_those_of_the_thinned_trips(small_dataset: Dataset) -> None:
    profile = make_profile(small_dataset, ["1/4"])
    trips = small_dataset.split("train").trips()
    thinned = trips.keep_fixes(draw_observed(trips, "1/4"))
    gaps = [
        gap
        for first, end in zip(thinned.offsets[:-1], thinned.offsets[1:], strict=True)
        for gap in np.diff(thinned.time[first:end])
    ]
    assert profile.interval_s[2] == np.median(gaps)
    seen = np.isfinite(trips.lon)
    assert profile.bbox[0] == pytest.approx(trips.lon[seen].min(), abs=1e-5)
    assert profile.bbox[3] == pytest.approx(trips.lat[seen].max(), abs=1e-5)
    assert list(profile.speed_mps) == sorted(profile.speed_mps)
    assert 0 < profile.speed_mps[2] < 30


def test_motion_stays_within_trips() -> None:
    trips = Trips(
        as_text(["a", "b"]),
        np.array([0, 2, 5]),
        np.array([0, 10, 500, 500, 510]),
        np.zeros(5),
        np.array([0.0, 0.001, 50.0, 50.0, 50.0]),
    )
    seconds, speed = motion(trips)
    assert seconds.tolist() == [10, 10]
    assert speed.tolist() == pytest.approx([11.06, 0], abs=0.1)


def test_without_a_profile_the_card_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no profile"):
        read_profile(tmp_path)
    card = {"name": "x", "method": "m", "training": {}, "evaluations": [], "network": {"hash": "abc"}}
    (tmp_path / "card.json").write_text(json.dumps({**card, "data": {"step_s": 10, "time_zone": "UTC"}}))
    assert read_profile(tmp_path) == Profile(10, "UTC", "abc")
    (tmp_path / "profile.json").write_text("{")
    with pytest.raises(InputError, match="not the profile"):
        read_profile(tmp_path)
