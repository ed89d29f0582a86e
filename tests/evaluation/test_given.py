"""Draws that are prescribed by a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.given import given_draw
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)


def test_given_draws(small_dataset: Dataset, tmp_path: Path) -> None:  # noqa: F811
    test = small_dataset.split("test")
    ids, lengths = test.trips().traj_id.tolist(), test.lengths.tolist()
    steps = {ids[k]: {"1/8": [0, 3, lengths[k] - 1]} for k in (2, 0)}
    file = tmp_path / "draws.json"
    file.write_text(json.dumps({"trips": steps}))
    draw = given_draw(small_dataset, file, "1/8")
    assert draw.traj_id.tolist() == [ids[2], ids[0]]
    assert [int(k) for k in draw.observed.nonzero()[0]] == [0, 3, lengths[2] - 1] + [
        lengths[2] + k for k in (0, 3, lengths[0] - 1)
    ]
    assert draw.rule == "fixed"
    for change, message in {
        '{"trips": {"nobody": {"1/8": [0]}}}': "1 of 1 trips, such as nobody, are not in 'test'",
        json.dumps({"trips": {ids[0]: {"1/8": [0]}}}): "do not end with its last",
        json.dumps({"trips": {ids[0]: {"1/4": [0]}}}): "does not give observed steps",
        "[": "does not give observed steps",
    }.items():
        file.write_text(change)
        with pytest.raises(InputError, match=message):
            given_draw(small_dataset, file, "1/8")
