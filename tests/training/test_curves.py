"""Training curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.training.curves import plot_curves


def row(epoch: int, accuracy: float) -> str:
    return json.dumps({"epoch": epoch, "loss_segment": 3.0 - epoch, "loss_ratio": 0.1, "valid_accuracy": accuracy})


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_picture_of_the_run(tmp_path: Path, epochs: int) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(row(k, 0.5 - k / 10) + "\n" for k in range(epochs)))
    path = plot_curves(tmp_path)
    assert path == tmp_path / "curves.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "metrics.jsonl"]


def test_without_metrics(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="metrics of a run"):
        plot_curves(tmp_path)
