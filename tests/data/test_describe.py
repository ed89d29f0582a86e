import datetime
import zoneinfo

import numpy as np
import pytest

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.describe import describe_dataset, tally_splits
from tedtrajrec.data.sampling import draw_observed, effective_share, mean_fixes
from tedtrajrec.trips.table import Trips, as_text, concat_trips
from tests.conftest import make_grid
from tests.data.made_trips import START, STEP_S, made_trips

GRID = make_grid()
ZONE = "Europe/Lisbon"


def by_hand() -> Trips:
    """Return a trip of 4 steps, 30 m each along the first street, and one that stands still for 2 steps.

    Of the first, the second step has no truth and the third no fix.
    """
    segment = np.array([0, -1, 0, 0, 5, 5], np.int32)
    ratio = np.array([0.0, np.nan, 0.6, 0.9, 0.5, 0.5])
    lon, lat = GRID.point_at(np.maximum(segment, 0), [0.0, 0.3, 0.6, 0.9, 0.5, 0.5])
    lon[2] = lat[2] = np.nan
    time = START + np.array([0, 1, 2, 3, 1000, 1001]) * STEP_S
    return Trips(as_text(["a", "b"]), np.array([0, 4, 6]), time, lon, lat, segment, ratio)


def written(folder, train, *others, size=100) -> Dataset:
    splits = dict(zip(("train", "valid", "test"), ([*shards_of(t, size)] for t in (train, *others)), strict=False))
    dropped = {"too_short": 3, "far_away": 12}
    return write_dataset(folder, GRID, splits, step_s=STEP_S, time_zone=ZONE, dropped=dropped, source="trips.csv")


def test_figures_worked_out_by_hand(tmp_path):
    figures = describe_dataset(written(tmp_path / "a", by_hand()))
    train = figures.splits["train"]
    assert (train.trips, train.steps, train.mean_steps) == (2, 6, 3.0)
    assert train.mean_duration_s == (45 + 15) / 2
    assert train.mean_length_km == pytest.approx(0.9 * GRID.length_m[0] / 2 / 1000, rel=1e-6)
    assert train.mean_speed_kmh == pytest.approx(3.6 * 0.9 * GRID.length_m[0] / 60, rel=1e-6)
    assert train.without_fix == pytest.approx(1 / 6)
    assert train.without_truth == pytest.approx(1 / 6)
    assert train.observed_fixes == {"1/8": 2.0, "1/16": 2.0}
    assert train.observed_share == {"1/8": pytest.approx((2 / 4 + 2 / 2) / 2), "1/16": pytest.approx(0.75)}
    assert figures.splits["all"] == train
    assert figures.splits["test"].trips == 0
    assert np.isnan(figures.splits["test"].mean_duration_s)
    zone = zoneinfo.ZoneInfo(ZONE)
    assert figures.first == datetime.datetime.fromtimestamp(START, zone)
    assert figures.last == datetime.datetime.fromtimestamp(START + 1001 * STEP_S, zone)
    assert figures.n_visited == 2
    assert figures.width_km == pytest.approx(0.5, rel=1e-3)


def test_counts_worked_out_by_hand(tmp_path):
    tally = tally_splits(written(tmp_path / "a", by_hand()))["train"]
    np.testing.assert_array_equal(tally.gaps, [0, 2, 1])  # 0 to 1, over the missing one to 3, and in the second trip
    assert tally.on_segment[0] == 3
    assert tally.on_segment[5] == 2
    local = datetime.datetime.fromtimestamp(START, zoneinfo.ZoneInfo(ZONE))
    hour = 24 * local.weekday() + local.hour
    assert tally.hours[hour] == 4
    assert tally.hours.sum() == 6


def test_the_text_is_a_table(tmp_path):
    text = str(describe_dataset(written(tmp_path / "a", by_hand(), made_trips(GRID, [30, 40]))))
    lines = text.splitlines()
    assert "period       2014-07-03 16:06 to 2014-07-" in text  # local time is UTC+1 in summer
    assert lines[5:8] == ["dropped      15 trips", f"{'':<12} 12 far away", f"{'':<12} 3 too short"]
    rows = {line[:20].strip(): line[20:].split() for line in lines[8:]}
    assert [line.split() for line in lines if line.startswith(" " * 20)] == [["train", "valid", "test", "all"]]
    assert rows["trips"] == ["2", "2", "0", "4"]
    assert rows["steps"] == ["6", "70", "0", "76"]
    assert rows["duration (s)"] == ["30.0", "510.0", "-", "270.0"]
    assert rows["observed at 1/8"][2] == "-"
    assert "nan" not in text


def test_shards_and_splits_add_up(tmp_path):
    trips = made_trips(GRID, np.random.default_rng(3).integers(1, 40, 57).tolist())
    whole = describe_dataset(written(tmp_path / "a", trips)).splits["all"]
    parts = describe_dataset(
        written(
            tmp_path / "b", trips.select(range(20)), trips.select(range(20, 25)), trips.select(range(25, 57)), size=7
        )
    )
    for name, value in vars(whole).items():
        assert vars(parts.splits["all"])[name] == pytest.approx(value), name
    mask = draw_observed(trips, "1/8")
    assert whole.observed_share["1/8"] == pytest.approx(effective_share(mask, trips.offsets))
    assert whole.observed_fixes["1/8"] == pytest.approx(mean_fixes(mask, trips.offsets))


def test_a_dataset_without_trips(tmp_path):
    figures = describe_dataset(written(tmp_path / "a", made_trips(GRID, [])))
    assert figures.first is None
    assert "no trips" in str(figures)


def test_an_empty_shard_between_others(tmp_path):
    trips = made_trips(GRID, [4, 5])
    dataset = write_dataset(
        tmp_path / "a", GRID, {"train": [trips, trips.select([]), trips]}, step_s=STEP_S, time_zone=ZONE
    )
    assert describe_dataset(dataset).splits["train"].steps == concat_trips([trips, trips]).n_fixes
