"""Evaluations as rows: what ``evaluate -o`` wrote stands in a report beside the cells of plans.

Its ``metrics.json`` is a row of the group ``performance``, and its ``trips.parquet`` holds the metrics of each trip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray

from tedtrajrec.errors import InputError

FILE = "metrics.json"
_KEYS = {"method", "decoding", "config", "draw", "dataset", "metrics"}


def is_evaluation(content: dict[str, Any]) -> bool:
    """Return whether the content of a file is that of an evaluation."""
    return content.keys() >= _KEYS and "cell" not in content


def row_of_evaluation(content: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluation as the row of a cell; what was not asked for as usual is its variant."""
    draw, dataset, decoding = content["draw"], content["dataset"], content["decoding"]
    usual = {"split": "test", "rule": "exact"}
    asked = [("" if decoding == "own" else decoding), *(draw[key] for key in usual if draw[key] != usual[key])]
    given = {key: draw[key] for key in ("effective_share", "mean_fixes")}
    speed = {key: content[key] for key in ("recover_s", "trips_per_s") if key in content}
    words = ["tedtrajrec evaluate METHODS", dataset["name"], "--keep", draw["keep"], "-o", "metrics"]
    return {
        "cell": {
            "group": "performance",
            "method": content["method"],
            "variant": ", ".join(text for text in asked if text),
            "dataset": dataset["name"],
            "keep": draw["keep"],
            "seed": draw["seed"],
            "settings": [],
        },
        "method": {"name": content["method"], **content["config"]},
        "note": content.get("note", ""),
        "metrics": {"test": {**given, **speed, **content["metrics"]}},
        "draws": {"test": draw["hash"]},
        "network": dataset["network_hash"],
        "step_s": dataset["step_s"],
        "versions": {key: content["versions"][key] for key in ("tedtrajrec", "python", "torch")},
        "command": " ".join(words),
    }


def trips_of_evaluation(folder: Path, metrics: list[str]) -> tuple[NDArray[np.str_], NDArray[np.float64]] | None:
    """Return the ids of the trips of an evaluation and some metrics of each [n, M]; None where they are not there."""
    file = folder / "trips.parquet"
    if not file.exists():
        return None
    try:
        table = pyarrow.parquet.read_table(file, columns=["traj_id", *metrics])
        values = [table[name].to_numpy() for name in metrics]
    except (OSError, KeyError, ValueError) as error:  # those of pyarrow are among them
        raise InputError(
            f"these are no trips of an evaluation: {error}", file=file, remedy="Evaluate the method again."
        ) from error
    return np.array(table["traj_id"].to_pylist(), np.str_), np.column_stack(values).astype(np.float64)
