import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.experiments import hmm_interval
from tedtrajrec.experiments.hmm_interval import PAPER, format_rows, keep_every, main, run
from tedtrajrec.experiments.hmm_interval_plot import plot_rows
from tedtrajrec.trips.match import MatchConfig, match
from tedtrajrec.trips.table import Trips, as_text
from tests.conftest import make_grid
from tests.evaluation.walks import STEP_S, walk_dataset, walk_trips

LENGTHS = np.random.default_rng(3).integers(2, 60, 40)


@pytest.fixture(scope="module")
def city():
    return make_grid(12, 12, spacing_m=250)


@pytest.fixture(scope="module")
def trips(city):
    return walk_trips(city, LENGTHS, noise_m=8.0, without_fix=0.1, unknown=0.05)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, city, trips):
    return walk_dataset(tmp_path_factory.mktemp("walks") / "grid", city, trips)


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_every_kth_step_is_kept_from_the_first_on(lengths, k, seed):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n = int(offsets[-1])
    lost = np.random.default_rng(seed).random(n) < 0.3
    trips = Trips(
        traj_id=as_text(np.arange(len(lengths))),
        offsets=offsets,
        time=np.arange(n),
        lon=np.where(lost, np.nan, 1.0),
        lat=np.zeros(n),
    )
    kept = keep_every(trips, k)
    for i in range(len(lengths)):
        steps = np.arange(offsets[i], offsets[i + 1])[::k]
        assert kept.time[kept.offsets[i] : kept.offsets[i + 1]].tolist() == steps[~lost[steps]].tolist()


def test_accuracy_is_per_trip_then_the_mean(dataset, city, trips):
    (row,) = run(dataset, [4 * STEP_S], ["nk09"])
    kept = keep_every(trips, 4)
    found = match(kept, city, MatchConfig.preset("nk09"))
    known = kept.segment >= 0
    right = [
        (found.segment == kept.segment)[a:b][known[a:b]].mean()
        for a, b in zip(kept.offsets[:-1], kept.offsets[1:], strict=True)
        if known[a:b].any()
    ]
    assert row.accuracy == pytest.approx(np.mean(right))
    assert row.accuracy_se == pytest.approx(np.std(right, ddof=1) / np.sqrt(len(right)))
    assert (row.trips, row.fixes) == (len(right), known.sum())
    assert row.unmatched == pytest.approx((found.segment < 0)[known].mean())


def test_chunks_do_not_matter(dataset, monkeypatch):
    whole = run(dataset, presets=["song12"])
    assert [row.interval_s for row in whole] == [STEP_S * k for k in (1, 2, 4, 8, 16)]
    monkeypatch.setattr(hmm_interval, "_CHUNK", 7)
    parts = run(dataset, presets=["song12"])
    assert [(row.accuracy, row.fixes) for row in parts] == [(row.accuracy, row.fixes) for row in whole]


def test_some_trips_are_drawn_by_the_seed(dataset):
    def drawn(seed):
        return run(dataset, [STEP_S], ["nk09"], most_trips=10, seed=seed)[0]

    assert drawn(0).trips == 10
    assert drawn(0).accuracy == drawn(0).accuracy
    assert len({drawn(seed).fixes for seed in range(4)}) > 1


def test_what_cannot_be_run(dataset):
    with pytest.raises(ConfigError, match=r"20 s; it must be a multiple of the dataset's step of 15 s"):
        run(dataset, [20])
    with pytest.raises(ConfigError, match="0 s"):
        run(dataset, [0])
    with pytest.raises(ConfigError, match="no preset 'best'"):
        run(dataset, presets=["best"])
    with pytest.raises(InputError, match="no trips in 'train'"):
        run(dataset, split="train")


def test_from_the_command_line(dataset, tmp_path, capsys):
    main([str(dataset.path), "-o", str(tmp_path / "out"), "--intervals", "15", "60", "--presets", "default", "song12"])
    content = json.loads((tmp_path / "out" / "hmm_interval.json").read_text())
    assert {(row["preset"], row["interval_s"]) for row in content["rows"]} == {
        (preset, interval) for preset in ("default", "song12") for interval in (15, 60)
    }
    assert content["paper"]["accuracy"]["160"] == PAPER[160]
    assert "independent" in content["note"]
    assert image.imread(tmp_path / "out" / "hmm_interval.png").shape[:2] == (558, 900)
    head, fixes, default, song12, paper = capsys.readouterr().out.splitlines()
    assert head.split() == ["interval,", "s", "15", "60"]
    assert fixes.startswith("fixes a trip")
    assert f"{content['rows'][0]['accuracy']:.4f}" in default
    assert song12.startswith("song12")
    assert "0.3490 at 160 s" in paper


def test_the_same_rows_give_the_same_picture(dataset, tmp_path):
    rows = run(dataset, [15, 30], ["nk09"])
    for name in ("a.svg", "b.svg"):
        plot_rows(rows, tmp_path / name, title="grid")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "nk09" in format_rows(rows)
