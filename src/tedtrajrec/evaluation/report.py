"""Evaluations to files, and as a table for the terminal.

A folder holds ``metrics.json`` (means and all that is needed to repeat them), ``trips.parquet`` (one row a trip) and,
where the answers were kept, ``recovered.parquet`` (one row a step).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tedtrajrec.errors import OutputError
from tedtrajrec.evaluation.run import Draw, Evaluation, Steps, truth_of
from tedtrajrec.files import replacing

SCHEMA = 1
_PACKAGES = ("tedtrajrec", "numpy", "scipy", "numba", "torch")
_CHUNK = 16_384  # trips whose steps are written at a time


def write_evaluation(evaluation: Evaluation, folder: str | Path) -> None:
    """Write an evaluation into a folder, which may exist; files of the same name are replaced.

    ``metrics.json`` comes last: where it is, the other files belong to it.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give a folder to write to.")
    with contextlib.suppress(FileNotFoundError):
        (folder / "metrics.json").unlink()  # of an evaluation before
    with replacing(folder / "trips.parquet") as path:
        pa.parquet.write_table(_trip_table(evaluation), path, compression="zstd")
    if evaluation.steps is not None:
        with replacing(folder / "recovered.parquet") as path:
            _write_steps(evaluation.draw, evaluation.steps, path)
    with replacing(folder / "metrics.json") as path:
        text = json.dumps(describe(evaluation), indent=2, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", "utf-8")


def describe(evaluation: Evaluation) -> dict[str, Any]:
    """Return method, draw, dataset, metrics and versions as plain values, fit for JSON; NaN is None."""
    draw = evaluation.draw
    info = draw.dataset.info
    return {
        "schema": SCHEMA,
        "method": evaluation.method,
        "decoding": evaluation.decoding,
        "note": evaluation.note,
        "config": _plain(evaluation.config),
        "draw": {
            "split": draw.split,
            "keep": str(draw.keep),
            "rule": draw.rule,
            "seed": draw.seed,
            "trips": len(draw),
            "steps": int(draw.offsets[-1]),
            "effective_share": draw.effective_share,
            "mean_fixes": draw.mean_fixes,
            "hash": draw.hash,
            "truth": _plain(draw.true_drives.summary()),
        },
        "dataset": {
            "name": draw.dataset.path.resolve().name,
            "source": info.source,
            "step_s": info.step_s,
            "time_zone": info.time_zone,
            "network_hash": info.network_hash,
            "splits": {name: asdict(size) for name, size in info.splits.items()},
        },
        "recover_s": evaluation.recover_s,
        "trips_per_s": _plain(evaluation.trips_per_s),
        "metrics": {
            name: int(value) if name.startswith("n_") or name.endswith("_trips") else _plain(value)
            for name, value in evaluation.summary.items()
            if name not in _ELSEWHERE
        },
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in _PACKAGES},
    }


_ELSEWHERE = ("effective_share", "mean_fixes", "recover_s", "trips_per_s")


def _plain(value: Any) -> Any:  # noqa: ANN401  (any nested settings)
    """Return nested values as JSON holds them; it has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _trip_table(evaluation: Evaluation) -> pa.Table:
    draw = evaluation.draw
    columns: dict[str, Any] = {
        "traj_id": pa.array(draw.traj_id.tolist(), pa.string()),
        "n_fixes": pa.array(np.add.reduceat(draw.observed, draw.offsets[:-1], dtype=np.int64)),
    }
    for name, values in (evaluation.metrics.columns() | evaluation.drives.columns()).items():
        columns[name] = pa.array(values, from_pandas=values.dtype.kind == "f")  # NaN: the trip has no such step
    return pa.table(columns)


def _write_steps(draw: Draw, steps: Steps, path: Path) -> None:
    source, network = draw.dataset.split(draw.split), draw.dataset.network
    writer: pa.parquet.ParquetWriter | None = None
    try:
        for first in range(0, len(draw), _CHUNK):
            trips = source.trips(draw.number[first : first + _CHUNK])
            rows = slice(draw.offsets[first], draw.offsets[first] + trips.n_fixes)
            segment, answered = steps.segment[rows], steps.segment[rows] >= 0
            lon, lat = np.full(trips.n_fixes, np.nan), np.full(trips.n_fixes, np.nan)
            lon[answered], lat[answered] = network.point_at(segment[answered], steps.ratio[rows][answered])
            true_segment, true_ratio = truth_of(trips)
            known = true_segment >= 0
            table = pa.table(
                {
                    "traj_id": pa.array(np.repeat(trips.traj_id, trips.lengths).tolist(), pa.string()),
                    "timestamp": pa.array(trips.time * 1000, pa.timestamp("ms", "UTC")),
                    "segment": pa.array(segment, mask=~answered),
                    "ratio": pa.array(steps.ratio[rows], mask=~answered),
                    "lon": pa.array(lon, mask=~answered),
                    "lat": pa.array(lat, mask=~answered),
                    "observed": pa.array(draw.observed[rows]),
                    "true_segment": pa.array(true_segment, mask=~known),
                    "true_ratio": pa.array(true_ratio, mask=~known),
                    "log_prob": pa.array(steps.log_prob[rows], from_pandas=True),
                }
            )
            writer = writer or pa.parquet.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


# ---------------------------------------------------------------------- the table

_COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    # group, heading, name in the summary, format
    ("given", "share", "effective_share", ".3f"),
    ("given", "fixes", "mean_fixes", ".1f"),
    ("accuracy", "all", "accuracy", ".3f"),
    ("accuracy", "±", "accuracy_se", ".3f"),
    ("accuracy", "observed", "accuracy_observed", ".3f"),
    ("accuracy", "missing", "accuracy_missing", ".3f"),
    ("accuracy", "no route", "accuracy_no_route", ".3f"),
    ("segments in order", "recall", "recall", ".3f"),
    ("segments in order", "prec.", "precision", ".3f"),
    ("segments in order", "F1", "f1", ".3f"),
    ("network m, capped", "MAE", "mae_m", ".0f"),
    ("network m, capped", "RMSE", "rmse_m", ".0f"),
    ("network m, capped", "at cap", "capped_share", ".3f"),
    ("within cap", "MAE", "mae_uncapped_m", ".0f"),
    ("within cap", "RMSE", "rmse_uncapped_m", ".0f"),
    ("trips", "broken", "broken", ".3f"),
    ("", "trips/s", "trips_per_s", ",.0f"),
)


def format_table(evaluations: Sequence[Evaluation]) -> str:
    """Return evaluations as a table for the terminal, one line each.

    Metrics are means over trips and ``±`` is the standard error of the accuracy; ``share`` and ``fixes`` are what the
    method was given. What the lines have in common (dataset, split, number of trips, seed) stands above them.
    """
    tables = [_table(title, list(group)) for title, group in itertools.groupby(evaluations, _title)]
    return "\n\n".join(tables)


def _title(evaluation: Evaluation) -> str:
    draw = evaluation.draw
    trips = f"{len(draw):,} {draw.split} trips, {draw.offsets[-1]:,} steps of {draw.dataset.info.step_s} s"
    return f"{draw.dataset.path.resolve().name}: {trips}; seed {draw.seed}"


def _table(title: str, evaluations: Sequence[Evaluation]) -> str:
    groups = ["", "", "", *(group for group, *_ in _COLUMNS)]
    rows = [["method", "keep", "rule", *(heading for _, heading, *_ in _COLUMNS)]]
    rows += [
        [_label(e), str(e.draw.keep), e.draw.rule, *(_number(e.summary[name], form) for *_, name, form in _COLUMNS)]
        for e in evaluations
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gaps = ["" if i == 0 else " " if group and group == groups[i - 1] else "  " for i, group in enumerate(groups)]
    lines = [title, _group_line(groups, widths, gaps)]
    for row in rows:
        cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("".join(gap + cell for gap, cell in zip(gaps, cells, strict=True)).rstrip())
    lines += [
        f"{_label(e)}, {e.draw.keep}: no answer at {e.summary['n_unanswered']:,.0f} steps"
        for e in evaluations
        if e.summary["n_unanswered"]
    ]
    lines += dict.fromkeys(f"{_label(e)}: {e.note}" for e in evaluations if e.note)
    return "\n".join(lines)


def _label(evaluation: Evaluation) -> str:
    """Return the method, and how it decoded if not in its own way."""
    return evaluation.method if evaluation.decoding == "own" else f"{evaluation.method}, {evaluation.decoding}"


def _group_line(groups: Sequence[str], widths: Sequence[int], gaps: Sequence[str]) -> str:
    """Return the line that names groups of columns, each in the middle of its own."""
    line = ""
    for group, columns in itertools.groupby(range(len(groups)), key=lambda i: groups[i]):
        first, *others = columns
        width = widths[first] + sum(len(gaps[i]) + widths[i] for i in others)
        line += gaps[first] + (f" {group} ".center(width, "-") if group else " " * width)
    return line.rstrip()


def _number(value: float, form: str) -> str:
    if math.isnan(value):
        return "-"
    text = format(value, form)
    return text.removeprefix("0") if form == ".3f" else text  # shares are written .123
