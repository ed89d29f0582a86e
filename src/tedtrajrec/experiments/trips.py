"""What a cell recovered, trip by trip: for paired tests, maps and what trips are used for.

A file ``trips/<name of the cell>.npz`` beside the rows holds the test trips in the order of their draw.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.run import Evaluation
from tedtrajrec.files import existing_file, replacing

METRICS = ("accuracy", "recall", "precision", "f1", "mae_m", "rmse_m")
"""The paper's, one value a trip."""


class CellTrips(NamedTuple):
    """T trips with N steps in all."""

    traj_id: NDArray[np.str_]  # [T]
    offsets: NDArray[np.int64]  # [T+1]
    observed: NDArray[np.bool_]  # [N]
    segment: NDArray[np.int32]  # [N] -1 without an answer
    ratio: NDArray[np.float16]  # [N]
    accuracy: NDArray[np.float32]  # [T] and so are the others
    recall: NDArray[np.float32]
    precision: NDArray[np.float32]
    f1: NDArray[np.float32]
    mae_m: NDArray[np.float32]
    rmse_m: NDArray[np.float32]


def save_trips(file: str | Path, evaluation: Evaluation) -> None:
    """Write what a method recovered; the evaluation must have its steps."""
    draw, steps = evaluation.draw, evaluation.steps
    if steps is None:
        raise ValueError("the evaluation has no steps")
    trips = CellTrips(
        np.array(draw.traj_id.tolist(), np.str_),
        draw.offsets,
        draw.observed,
        steps.segment,
        steps.ratio.astype(np.float16),
        *(getattr(evaluation.metrics, name).astype(np.float32) for name in METRICS),
    )
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as path, path.open("wb") as stream:
        np.savez_compressed(stream, **trips._asdict())


def load_trips(file: str | Path) -> CellTrips:
    """Read what :func:`save_trips` wrote."""
    path = existing_file(file, "recovered trips")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return CellTrips(*(arrays[name] for name in CellTrips._fields))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"these are no recovered trips: {error}",
            file=path,
            remedy="Delete the file and its row and run the cell again.",
        ) from error
