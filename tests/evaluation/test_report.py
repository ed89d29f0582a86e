import importlib.metadata
import itertools
import json
import math

import numpy as np
import polars as pl
import pytest

from tedtrajrec.errors import OutputError
from tedtrajrec.evaluation.calibration_plot import plot_confidence
from tedtrajrec.evaluation.report import describe, format_table, write_evaluation
from tedtrajrec.evaluation.run import evaluate_method
from tests.evaluation.walks import STEP_S, Nearest, Silent, walk_dataset, walk_trips


@pytest.fixture(scope="module")
def trips(tiny_city):
    return walk_trips(tiny_city, np.random.default_rng(1).integers(2, 30, 20), without_fix=0.2, unknown=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, tiny_city, trips):
    return walk_dataset(tmp_path_factory.mktemp("walks") / "city", tiny_city, trips)


@pytest.fixture(scope="module")
def nearest(dataset, tiny_city):
    return evaluate_method(Nearest(tiny_city), dataset, keep="1/8", seed=2, keep_steps=True)


def test_metrics_json_says_what_was_done(tmp_path, nearest, tiny_city, trips):
    write_evaluation(nearest, tmp_path / "deep" / "out")
    got = json.loads((tmp_path / "deep" / "out" / "metrics.json").read_text())
    assert got["method"] == "nearest"
    assert got["config"] == {}
    draw = got["draw"]
    assert (draw["split"], draw["keep"], draw["rule"], draw["seed"]) == ("test", "1/8", "exact", 2)
    assert (draw["trips"], draw["steps"], draw["hash"]) == (20, trips.n_fixes, nearest.draw.hash)
    assert draw["effective_share"] == nearest.draw.effective_share
    assert draw["mean_fixes"] == nearest.draw.mean_fixes
    assert (got["dataset"]["name"], got["dataset"]["network_hash"]) == ("city", tiny_city.hash)
    assert got["versions"]["numpy"] == importlib.metadata.version("numpy")
    assert (got["recover_s"], got["trips_per_s"]) == (nearest.recover_s, nearest.trips_per_s)
    metrics = got["metrics"]
    for name in nearest.metrics.values():
        expected = nearest.summary[name]
        assert metrics[name] == (None if math.isnan(expected) else expected)
        assert f"{name}_se" in metrics
    assert metrics["accuracy_no_route"] is None  # everything can be reached on the grid
    assert isinstance(metrics["n_steps"], int)
    for name in ("drivable", "broken_120kmh", "breaks_per_trip", "ece", "brier", "nll", "accuracy_at_80"):
        assert metrics[name] == nearest.summary[name]
    assert draw["truth"] == nearest.draw.true_drives.summary()
    assert not list((tmp_path / "deep" / "out").glob(".*"))


def test_one_row_for_each_trip(tmp_path, nearest):
    write_evaluation(nearest, tmp_path)
    rows = pl.read_parquet(tmp_path / "trips.parquet")
    assert rows["traj_id"].to_list() == nearest.draw.traj_id.tolist()
    starts = nearest.draw.offsets
    assert rows["n_fixes"].to_list() == [nearest.draw.observed[a:b].sum() for a, b in itertools.pairwise(starts)]
    for name, column in (nearest.metrics.columns() | nearest.drives.columns()).items():
        np.testing.assert_array_equal(rows[name].fill_null(np.nan).to_numpy(), column)
    assert rows["accuracy_no_route"].null_count() == 20


def test_one_row_for_each_step(tmp_path, nearest, tiny_city, trips, monkeypatch):
    monkeypatch.setattr("tedtrajrec.evaluation.report._CHUNK", 6)
    write_evaluation(nearest, tmp_path)
    rows = pl.read_parquet(tmp_path / "recovered.parquet")
    assert rows["traj_id"].to_list() == trips.traj_id[trips.trip_of_fix].tolist()
    assert (rows["timestamp"].dt.epoch("s").to_numpy() == trips.time).all()
    assert rows["timestamp"].dtype == pl.Datetime("ms", "UTC")
    np.testing.assert_array_equal(rows["segment"], nearest.steps.segment)
    lon, lat = tiny_city.point_at(nearest.steps.segment, nearest.steps.ratio)
    np.testing.assert_allclose(rows["lon"], lon)
    np.testing.assert_allclose(rows["lat"], lat)
    np.testing.assert_array_equal(rows["observed"], nearest.draw.observed)
    np.testing.assert_array_equal(rows["true_segment"].fill_null(-1), trips.segment)
    np.testing.assert_array_equal(rows["true_ratio"].fill_null(np.nan), trips.ratio)
    np.testing.assert_array_equal(rows["log_prob"], nearest.steps.log_prob)


def test_steps_without_an_answer_are_empty(tmp_path, dataset, tiny_city):
    write_evaluation(evaluate_method(Silent(tiny_city), dataset, keep="1/8", keep_steps=True), tmp_path)
    rows = pl.read_parquet(tmp_path / "recovered.parquet")
    assert all(rows[name].is_null().all() for name in ("segment", "ratio", "lon", "lat", "log_prob"))
    assert rows["observed"].null_count() == 0
    assert "ece" not in json.loads((tmp_path / "metrics.json").read_text())["metrics"]


def test_steps_are_written_only_where_they_were_kept(tmp_path, dataset, tiny_city):
    write_evaluation(evaluate_method(Silent(tiny_city), dataset, keep="1/8"), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["metrics.json", "trips.parquet"]


def test_the_picture_of_confidence(tmp_path, dataset, tiny_city, nearest):
    path = plot_confidence(nearest, tmp_path / "confidence.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    for keep_steps in (True, False):
        without = evaluate_method(Silent(tiny_city), dataset, keep="1/8", keep_steps=keep_steps)
        with pytest.raises(ValueError, match="no probabilities"):
            plot_confidence(without, tmp_path / "none.png")


def test_settings_without_a_json_form(dataset, tiny_city):
    e = evaluate_method(Silent(tiny_city), dataset, keep="1/8")
    config = {"tail": math.inf, "nested": {"none": None, "several": (1, math.nan)}}
    object.__setattr__(e, "config", config)
    assert describe(e)["config"] == {"tail": "inf", "nested": {"none": None, "several": [1, None]}}


def test_a_file_in_the_place_of_the_folder(tmp_path, nearest):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        write_evaluation(nearest, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_table(dataset, tiny_city, nearest):
    evaluations = [
        nearest,
        evaluate_method(Nearest(tiny_city), dataset, keep="1/16", seed=2),
        evaluate_method(Silent(tiny_city), dataset, keep="1/8", seed=3, rule="uniform", trips=[0, 1, 2]),
    ]
    first, second = format_table(evaluations).split("\n\n")
    title, groups, heads, *lines = first.splitlines()
    assert title.startswith("city: 20 test trips")
    assert f"steps of {STEP_S} s; seed 2" in title
    assert "accuracy" in groups
    assert [line.split()[:3] for line in lines] == [["nearest", "1/8", "exact"], ["nearest", "1/16", "exact"]]
    cells = dict(
        zip(heads.replace("no route", "no_route").replace("at cap", "at_cap").split(), lines[0].split(), strict=True)
    )
    assert float(cells["all"]) == pytest.approx(nearest.summary["accuracy"], abs=0.0006)
    assert float(cells["F1"]) == pytest.approx(nearest.summary["f1"], abs=0.0006)
    assert cells["no_route"] == "-"
    assert len({len(line) for line in [heads, *lines]}) == 1
    assert second.startswith("city: 3 test trips")
    assert second.splitlines()[-1] == f"silent, 1/8: no answer at {evaluations[2].summary['n_unanswered']:.0f} steps"
    assert format_table([]) == ""
