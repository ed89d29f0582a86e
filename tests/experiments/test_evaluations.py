"""Evaluations as rows of a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.report import write_evaluation
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.experiments.reporting.results import results_of
from tedtrajrec.experiments.reporting.rows import read_results, slots
from tedtrajrec.methods.registry import make_method
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)


def test_an_evaluation_is_a_row_with_its_trips(small_dataset: Dataset, tmp_path: Path) -> None:  # noqa: F811
    method = make_method("linear_hmm", small_dataset.network)
    for rule in ("exact", "uniform"):
        evaluation = evaluate_draw(method, draw_steps(small_dataset, keep="1/8", rule=rule))
        write_evaluation(evaluation, tmp_path / evaluation.name)
    found = {result.variant: result for result in results_of(slots(read_results(tmp_path)))}
    assert found.keys() == {"", "uniform"}
    result = found["uniform"]
    assert (result.method, result.dataset, result.keep) == ("linear_hmm", "dataset", "1/8")
    mean = result.metric("accuracy")
    assert mean is not None
    assert mean.mean == evaluation.summary["accuracy"]
    assert result.draws == {evaluation.draw.hash}
    assert result.trips is not None
    assert result.trips.traj_id.tolist() == evaluation.draw.traj_id.tolist()
    assert result.trips.values.mean(axis=0)[3] == pytest.approx(mean.mean)

    file = tmp_path / evaluation.name / "metrics.json"
    (file.parent / "trips.parquet").write_bytes(b"no Parquet")
    broken = {one.variant: one for one in results_of(slots(read_results(tmp_path)))}["uniform"]
    with pytest.raises(InputError, match="no trips of an evaluation"):
        _ = broken.trips
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "draw": {"keep": "1/8"}}))
    with pytest.raises(InputError, match="this evaluation is not whole"):
        read_results(tmp_path)
