"""What recovered trips are used for: similarity search and clustering, as the paper's table on upstream tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedtrajrec.experiments.reporting.page import Block, Line, Part, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import family_of, label_of, order_of
from tedtrajrec.experiments.reporting.results import Spread, number_with_spread, spread
from tedtrajrec.experiments.reporting.rows import Row
from tedtrajrec.experiments.reporting.tables import marked

KIND = "uses"
"""Of the rows of :mod:`tedtrajrec.experiments.uses`."""

_REFERENCES = {
    # method of the row: its name and block
    "raw": ("Raw data, matched", "Sparse"),
    "raw_nearest": ("Raw data, nearest segments", "Sparse"),
    "truth": ("The truth", "True"),
}
_LABELS = {"r_at_1": "R@1", "r_at_10": "R@10", "r_at_50": "R@50", "adjusted_rand": "adjusted Rand"}
_MEANING = (
    "R@k: the share of trips whose most similar other true trip is among the k most similar recovered ones. Clusters "
    "(DBSCAN) are compared with those of the true trips, mean over eps. Higher is better for all."
)


def uses_section(rows: Sequence[Row]) -> Section | None:
    """Return a table for each draw and measure: raw data, methods, and the truth; None without rows.

    Parameters
    ----------
    rows
        Of this kind; columns are what they hold.
    """
    draws: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cell, draw = row.content["cell"], row.content.get("draw", {})
        draws.setdefault((cell.get("dataset", ""), cell.get("keep", ""), draw.get("hash", "")), []).append(row)
    parts: list[Part] = []
    for (dataset, keep, _), found in draws.items():
        measures = dict.fromkeys(measure for row in found for measure in row.content["metrics"])
        parts += [
            _table(found, measure, f"{measure.upper()}, {_place(dataset, keep, found[0])}") for measure in measures
        ]
    return Section("Use of recovered trips", parts) if parts else None


def _place(dataset: str, keep: str, row: Row) -> str:
    words = [dataset, f"at keep {keep}" if keep else ""]
    facts = [f"{row.content['trips']:,} trips"] if "trips" in row.content else []
    if "mean_fixes" in row.content.get("draw", {}):
        facts.append(f"{row.content['draw']['mean_fixes']:.1f} fixes a trip")
    return f"{' '.join(word for word in words if word)} ({', '.join(facts)})."


def _table(rows: Sequence[Row], measure: str, caption: str) -> Table:
    groups: dict[tuple[str, str, bool], list[Row]] = {}  # seeds of a method; unfinished ones apart
    for row in rows:
        cell = row.content["cell"]
        groups.setdefault((str(cell["method"]), str(cell.get("variant", "")), row.finished), []).append(row)
    names = sorted(groups, key=lambda name: _order(name[0]))
    columns = dict.fromkeys(column for row in rows for column in _figures(row, measure))
    values = [_column([groups[name] for name in names], measure, column) for column in columns]
    blocks: dict[str, list[Line]] = {}
    for name, line in zip(names, zip(*values, strict=True), strict=True):
        method, variant, finished = name
        label, block = _REFERENCES.get(method, (label_of(method), family_of(method)))
        head = ", ".join(text for text in (label, variant) if text) + ("" if finished else " (unfinished)")
        blocks.setdefault(block, []).append(Line(head, (*line, Value(str(len(groups[name]))))))
    heads = (_LABELS.get(column, column.replace("_", " ")) for column in columns)
    made = tuple(Block(tuple(lines), title) for title, lines in blocks.items())
    return Table(caption, ("", *heads, "seeds"), made, (f"{_MEANING}{_settings(rows[0].content.get('settings', {}))}",))


def _column(groups: Sequence[Sequence[Row]], measure: str, column: str) -> list[Value]:
    means: list[Spread | None] = []
    texts = []
    for rows in groups:
        found = spread(figures[column] for row in rows if column in (figures := _figures(row, measure)))
        competes = rows[0].finished and rows[0].content["cell"]["method"] not in _REFERENCES
        means.append(found if competes else None)
        texts.append(Value() if found is None else Value(number_with_spread(found, 3), rows=tuple(rows)))
    return marked(means, texts, higher=True)


def _figures(row: Row, measure: str) -> Mapping[str, float]:
    figures: Mapping[str, float] = row.content["metrics"].get(measure, {})
    return figures


def _order(method: str) -> int:
    """Return the place of a method: raw data first, the truth last."""
    if method in _REFERENCES:
        return 10_000 if method == "truth" else -1
    return order_of(method)


def _settings(settings: Mapping[str, Any]) -> str:
    if not {"eps", "min_samples"} <= settings.keys():
        return ""
    return f" eps {min(settings['eps']):g} to {max(settings['eps']):g}, min_samples {settings['min_samples']}."
