"""Similarity search and clustering over the recovered trips of cells: rows, their figures, what is done once."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics
from sklearn.cluster import DBSCAN

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.clustering import EPS
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.evaluation.similarity import MEASURES
from tedtrajrec.experiments import uses
from tedtrajrec.experiments.trips import load_trips, save_trips
from tedtrajrec.experiments.uses import FIGURES, format_uses, run_uses
from tedtrajrec.methods.registry import make_method
from tedtrajrec.trips.match import match
from tests.conftest import make_grid
from tests.evaluation.test_similarity import literal_matrix
from tests.evaluation.walks import Truth, walk_dataset, walk_trips

CELLS = ("found-city-linear_hmm-1of4-0", "found-city-linear_hmm-1of8-0", "found-city-truth_method-1of4-0")


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    network = make_grid(4, 4)
    lengths = np.random.default_rng(0).integers(6, 24, 60)
    trips = walk_trips(network, lengths, seed=1, without_fix=0.1, unknown=0.05)
    return walk_dataset(tmp_path_factory.mktemp("uses") / "city", network, trips)


@pytest.fixture(scope="module")
def results(city: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for name in CELLS:
        _, _, method, keep, _ = name.split("-")
        ready = Truth(city.network) if method == "truth_method" else make_method(method, city.network)
        draw = draw_steps(city, keep=keep.replace("of", "/"))
        save_trips(folder / "trips" / f"{name}.npz", evaluate_draw(ready, draw, keep_steps=True))
        cell = {"method": method, "dataset": "city", "keep": keep.replace("of", "/"), "variant": ""}
        row = {"cell": cell, "finished": name != CELLS[0], "network": city.info.network_hash}
        (folder / f"{name}.json").write_text(json.dumps(row))
    return folder


@pytest.fixture(scope="module")
def rows(city: Dataset, results: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    found = run_uses(city, results, tmp_path_factory.mktemp("rows"), min_samples=3, say=lambda _: None)
    return {row["name"]: row for row in found}


def ragged(offsets, segment):
    return [[s for s in segment[a:b].tolist() if s >= 0] for a, b in itertools.pairwise(offsets)]


def row_of(rows, method, keep):
    (row,) = (row for row in rows.values() if row["cell"]["method"] == method and row["cell"]["keep"] == keep)
    return row


def test_one_row_for_truth_and_raw_fixes_of_each_draw_and_for_cells(rows, results) -> None:
    methods = sorted((row["cell"]["keep"], row["cell"]["method"]) for row in rows.values())
    references = ["linear_hmm", "raw", "raw_nearest", "truth"]
    expected = [("1/4", name) for name in (*references, "truth_method")] + [("1/8", name) for name in references]
    assert methods == expected
    cell = rows[CELLS[0]]
    assert cell["kind"] == "uses"
    assert cell["finished"] is False
    assert row_of(rows, "linear_hmm", "1/8")["finished"] is True
    observed = load_trips(results / "trips" / f"{CELLS[0]}.npz").observed
    assert cell["draw"]["mean_fixes"] == observed.sum() / 60
    assert row_of(rows, "raw", "1/4")["draw"] == cell["draw"] != row_of(rows, "raw", "1/8")["draw"]


def test_the_truth_finds_itself(rows, city) -> None:
    truth = row_of(rows, "truth", "1/8")
    unknown = int((city.split("test").trips().segment < 0).sum())
    assert unknown > 0
    assert truth["steps"] == city.split("test").n_steps - unknown
    for measure in MEASURES:
        assert truth["metrics"][measure] == dict.fromkeys(FIGURES, 1.0)


def test_rows_as_a_table(rows) -> None:
    lines = format_uses(list(rows.values())).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[0].startswith(
        "| dataset | keep | fixes | method | lcss R@1 | lcss R@10 | lcss R@50 | lcss homogeneity |"
    )
    assert {line.count("|") for line in lines} == {17}
    (line,) = (line for line in lines if "(unfinished)" in line)
    cell = rows[CELLS[0]]
    fixes, recall = cell["draw"]["mean_fixes"], cell["metrics"]["lcss"]["r_at_1"]
    assert line.startswith(f"| city | 1/4 | {fixes:.1f} | linear_hmm (unfinished) | {recall:.4f} |")


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("method", ["linear_hmm", "raw"])
def test_figures_by_their_definitions(rows, city, results, measure, method) -> None:
    """R@k and scores from whole matrices of the literal recurrences."""
    trips = city.split("test").trips()
    cell = load_trips(results / "trips" / f"{CELLS[0]}.npz")
    found = ragged(cell.offsets, cell.segment)
    if method == "raw":
        sparse = trips.keep_fixes(cell.observed)
        found = ragged(sparse.offsets, match(sparse, city.network).segment)
    true_distance = literal_matrix(ragged(trips.offsets, trips.segment), measure)
    distance = literal_matrix(found, measure)
    ranks = []
    for i in range(60):
        others = [j for j in range(60) if j != i]
        sought = min(others, key=lambda j, row=true_distance[i]: (row[j], j))
        ranks.append(1 + sorted(others, key=lambda j, row=distance[i]: (row[j], j)).index(sought))
    row = row_of(rows, method, "1/4")
    figures, by_eps = row["metrics"][measure], row["details"][measure]["by_eps"]
    for k in (1, 10, 50):
        assert figures[f"r_at_{k}"] == np.mean(np.array(ranks) <= k)
    scores = []
    for eps, of_eps in zip(EPS, by_eps, strict=True):
        true, labels = (
            DBSCAN(eps=eps, min_samples=3, metric="precomputed").fit_predict(d) for d in (true_distance, distance)
        )
        homogeneity, completeness, _ = metrics.homogeneity_completeness_v_measure(true, labels)
        scores.append((homogeneity, completeness, metrics.adjusted_rand_score(true, labels)))
        assert of_eps["eps"] == eps
        assert of_eps["clusters"] == labels.max() + 1
        assert of_eps["noise_share"] == (labels < 0).mean()
    names = ("homogeneity", "completeness", "adjusted_rand")
    assert [figures[name] for name in names] == pytest.approx(np.mean(scores, 0), abs=1e-12)


def test_rows_that_are_there_are_not_made_again(city, results, tmp_path, monkeypatch) -> None:
    first = run_uses(city, results, tmp_path, cells=["*1of4*"], say=lambda _: None)
    assert len(first) == 5
    said: list[str] = []
    second = run_uses(city, results, tmp_path, say=said.append)
    assert len(second) == 9
    assert all(row in second for row in first)
    assert [line.split(":")[0].split("-")[0] for line in said] == ["truth", "raw", "raw_nearest", "found"]

    monkeypatch.setattr(uses, "find_neighbours", None)  # nothing is computed
    assert len(run_uses(city.path, results, tmp_path, say=said.append)) == 9
    assert len(said) == 4
    with pytest.raises(TypeError):  # other settings need other figures
        run_uses(city, results, tmp_path, min_samples=2)
    with pytest.raises(ConfigError, match="at least 1"):
        run_uses(city, results, tmp_path, min_samples=0)


def test_broken_rows_are_made_again(city, results, tmp_path) -> None:
    first = run_uses(city, results, tmp_path, cells=[CELLS[0]], say=lambda _: None)
    (tmp_path / f"{CELLS[0]}.json").write_text("{")
    again = run_uses(city, results, tmp_path, cells=[CELLS[0]], say=lambda _: None)
    assert again[-1]["metrics"] == first[-1]["metrics"]
    assert json.loads((tmp_path / f"{CELLS[0]}.json").read_text()) == again[-1]


def test_cells_of_other_datasets_are_left_out_and_named(city, results, tmp_path) -> None:
    shutil.copytree(results, tmp_path / "results")
    (tmp_path / "results" / f"{CELLS[1]}.json").write_text(json.dumps({"network": "another"}))
    said: list[str] = []
    rows = run_uses(city, tmp_path / "results", tmp_path / "rows", cells=["*linear*"], say=said.append)
    assert f"{CELLS[1]}: left out, it is of another dataset" in said
    assert [row["name"] for row in rows if row["cell"]["method"] == "linear_hmm"] == [CELLS[0]]


def test_trips_that_are_not_of_the_dataset(city, results, tmp_path) -> None:
    with pytest.raises(InputError, match="none is of the cells nobody"):
        run_uses(city, results, tmp_path, cells=["nobody"])
    with pytest.raises(InputError, match="there are 0 files"):
        run_uses(city, tmp_path, tmp_path)
    cell = load_trips(results / "trips" / f"{CELLS[0]}.npz")
    (tmp_path / "trips").mkdir()

    def save(**changed) -> None:
        np.savez(tmp_path / "trips" / "bad.npz", **cell._replace(**changed)._asdict())

    save(traj_id=np.where(np.arange(60) == 4, "stranger", cell.traj_id))
    with pytest.raises(InputError, match=r"bad\.npz, row 5, column 'traj_id': trip 'stranger' is not among"):
        run_uses(city, tmp_path, tmp_path)
    save(offsets=cell.offsets + np.where(np.arange(61) == 2, 1, 0))
    with pytest.raises(InputError, match=r"row 2: trip 'trip 1' has \d+ steps"):
        run_uses(city, tmp_path, tmp_path)
    one = cell.offsets[1]
    save(traj_id=cell.traj_id[:1], offsets=cell.offsets[:2], observed=cell.observed[:one], segment=cell.segment[:one])
    with pytest.raises(InputError, match="no other trip"):
        run_uses(city, tmp_path, tmp_path)
    save(observed=cell.observed[1:])
    with pytest.raises(InputError, match="do not fit together"):
        run_uses(city, tmp_path, tmp_path)
