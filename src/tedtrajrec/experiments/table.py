"""Rows of experiments as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {"accuracy": 3, "recall": 3, "precision": 3, "f1": 3, "mae_m": 0, "rmse_m": 0}
"""The paper's metrics and their decimals."""


def format_rows(rows: Sequence[Mapping[str, Any]], draw: str = "test") -> str:
    """Return a Markdown table: the mean over seeds and, where there are several, their standard deviation."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if draw in row["metrics"]:
            cell = row["cell"]
            key = cell["group"], cell["dataset"], cell["keep"], cell["method"], cell["variant"]
            groups.setdefault(key, []).append(row)
    lines = [
        "| group | dataset | keep | method | seeds | " + " | ".join(COLUMNS) + " |",
        "|---|---|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for (group, dataset, keep, method, variant), found in groups.items():
        values = [[row["metrics"][draw][name] for row in found] for name in COLUMNS]
        texts = [_mean(value, digits) for value, digits in zip(values, COLUMNS.values(), strict=True)]
        mark = "" if all(row["finished"] for row in found) else " (unfinished)"
        name = f"{method} {variant}".strip() + mark
        lines.append(f"| {group} | {dataset} | {keep} | {name} | {len(found)} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _mean(values: Sequence[float], digits: int) -> str:
    mean = sum(values) / len(values)
    text = f"{mean:,.{digits}f}"
    if len(values) > 1:
        spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        text += f" ± {spread:.{digits}f}"
    return text.replace("0.", ".") if digits else text
