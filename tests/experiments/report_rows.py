"""Made rows of experiments and their trips, for tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tedtrajrec.experiments.plan import Cell
from tedtrajrec.experiments.trips import CellTrips

TRIPS = 60

PLAN = """
[datasets.chengdu]
path = "chengdu"

[[cells]]
group = "performance"
methods = ["mm_stged"]
datasets = ["chengdu"]
seeds = [0, 1]

[[cells]]
group = "sensitivity"
methods = ["tedtrajrec"]
datasets = ["chengdu"]
seeds = [1]
variants."as it is" = []
variants."d 32" = ["model.d=32"]
"""


def write_row(
    folder: Path,
    method: str,
    accuracy: float,
    *,
    group: str = "performance",
    variant: str = "",
    dataset: str = "chengdu",
    keep: str = "1/8",
    seed: int = 0,
    settings: tuple[str, ...] = (),
    finished: bool = True,
    trips: bool = True,
    learned: bool = True,
    start: str = "",
    train: bool = True,
    **more: Any,
) -> Path:
    """Write a row whose six metrics follow from its accuracy, and trips with these means."""
    of_seed = (f"train.seed={seed}", f'train.keep=["{keep}"]') if learned and train else ()
    cell = Cell(group, method, variant, dataset, keep, seed, (*settings, *of_seed), start, train)
    metrics = {
        "accuracy": accuracy, "recall": accuracy + 0.05, "precision": accuracy + 0.1, "f1": accuracy + 0.07,
        "mae_m": 1000 * (1 - accuracy), "rmse_m": 1500 * (1 - accuracy),
    }  # fmt: skip
    summary = {
        **metrics, **{f"{name}_se": 0.01 for name in metrics}, "n_trips": float(TRIPS), "n_steps": 25.0 * TRIPS,
        "mean_fixes": 4.3, "effective_share": 0.178, "trips_per_s": 500.0, "ece": 0.02, "ece_missing": 0.03,
        "brier": 0.1, "accuracy_at_50": 0.95, "accuracy_at_80": 0.9, "accuracy_at_95": 0.8, "drivable": 0.6,
    }  # fmt: skip
    history = [
        {"epoch": k, "loss_total": 3.0 / (k + 1), "valid_accuracy": accuracy * k / 5, "seconds": 4.0} for k in range(5)
    ]
    row = {
        "cell": {**cell.__dict__, "settings": list(cell.settings)},
        "finished": finished,
        "method": {"name": method, "parameters": 4_000_000 if learned else 0, "d": 256, "encoder_layers": 2},
        "training": {"epochs": 5, "seconds": 20.0, "peak_mib": 2048, "history": history} if learned else {},
        "metrics": {"test": summary},
        "draws": {"test": f"draw-{dataset}-{keep}"},
        "date": "2026-11-16T10:00:00+00:00",
        "machine": {"gpu": "H200", "cores": 16},
        "versions": {"tedtrajrec": "0.1.0", "python": "3.12", "torch": "2.11"},
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{cell.name}.json"
    path.write_text(json.dumps(row))
    if trips:
        _write_trips(folder / "trips" / f"{cell.name}.npz", metrics, sum(map(ord, method)) + seed)
    return path


def _write_trips(path: Path, metrics: dict[str, float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {}
    for name, mean in metrics.items():
        noise = rng.normal(scale=0.05 * mean, size=TRIPS)
        values[name] = (mean + noise - noise.mean()).astype(np.float32)
    steps = 2 * TRIPS
    trips = CellTrips(
        np.array([f"trip{k}" for k in range(TRIPS)]), np.arange(0, steps + 1, 2), np.ones(steps, bool),
        np.zeros(steps, np.int32), np.zeros(steps, np.float16), **values,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **trips._asdict())
