"""What recovered trips are used for: similarity search and clustering, as the paper's table on upstream tasks."""

from __future__ import annotations

from collections.abc import Sequence

from tedtrajrec.config import from_dict
from tedtrajrec.experiments.plan import Cell
from tedtrajrec.experiments.reporting.page import Block, Line, Part, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import OTHER_FAMILY, family_of
from tedtrajrec.experiments.reporting.results import number_with_spread, results_of, spread
from tedtrajrec.experiments.reporting.rows import Row, Slot
from tedtrajrec.experiments.reporting.tables import marked

_BEFORE = {"raw": "Raw data, matched", "raw_nearest": "Raw data, nearest segments"}
_LABELS = {
    "recall_at_1": "R@1",
    "recall_at_10": "R@10",
    "recall_at_50": "R@50",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "adjusted_rand": "adjusted Rand",
}
"""Of what is higher for better; other numbers of the rows follow, by their own names and without marks."""


def is_use(row: Row) -> bool:
    """Return whether a row is of similarity search and clustering."""
    return "measures" in row.content


def uses_section(rows: Sequence[Row]) -> Section | None:
    """Return a table for each draw and measure: raw data, methods, and the truth; None without rows.

    Parameters
    ----------
    rows
        Those for which :func:`is_use` holds.
    """
    parts: list[Part] = []
    draws = dict.fromkeys((str(row.content["dataset"]), row.content["draw"]) for row in rows if "draw" in row.content)
    for dataset, draw in draws:
        here = [row for row in rows if row.content.get("draw") == draw]
        truths = {row.content.get("truth") for row in here}
        here += [row for row in rows if row.content["kind"] == "truth" and row.content.get("truth") in truths]
        measures = dict.fromkeys(name for row in here for name in row.content["measures"])
        parts += [_table(here, measure, f"{measure.upper()}, {dataset}{_given(here)}.") for measure in measures]
    return Section("Use of recovered trips", parts) if parts else None


def _given(rows: Sequence[Row]) -> str:
    """Return what methods were given."""
    keep = next((row.content["cell"]["keep"] for row in rows if row.content.get("cell")), None)
    fixes = next((row.content["mean_fixes"] for row in rows if "mean_fixes" in row.content), None)
    trips = max(int(row.content["trips"]) for row in rows)
    said = [f"at keep {keep}" if keep else "", f"{trips:,} trips", f"{fixes:.1f} fixes a trip" if fixes else ""]
    return "".join(f", {text}" for text in said if text)


def _table(rows: Sequence[Row], measure: str, caption: str) -> Table:
    numbers = {row: _numbers(row, measure) for row in rows}
    columns = dict.fromkeys([*_LABELS, *(name for found in numbers.values() for name in found)])
    columns = {name: None for name in columns if any(name in found for found in numbers.values())}
    recovered = [row for row in rows if row.content.get("cell")]
    slots = {from_dict(Cell, row.content["cell"]): row for row in recovered}
    results = results_of(Slot(cell, row) for cell, row in slots.items())
    groups = {result: result.rows for result in results}
    values: list[list[Value]] = []
    for name in columns:
        found = [spread(numbers[row][name] for row in group if name in numbers[row]) for group in groups.values()]
        texts = [
            Value() if one is None else Value(number_with_spread(one, _digits(name)), rows=group)
            for one, group in zip(found, groups.values(), strict=True)
        ]
        final = [one if result.final else None for one, result in zip(found, results, strict=True)]
        values.append(marked(final, texts, higher=True) if name in _LABELS else texts)
    blocks: dict[str, list[Line]] = {}
    for result, line in zip(results, zip(*values, strict=True), strict=True):
        head = f"{result.label} ({result.state})" if result.state else result.label
        blocks.setdefault(family_of(result.method), []).append(Line(head, line))
    made = [Block(tuple(lines), family) for family, lines in blocks.items()]
    nameless = [row for row in rows if row.content["kind"] == "recovered" and not row.content.get("cell")]
    if nameless:
        lines = [_single(row, str(row.content["name"]), numbers[row], columns) for row in nameless]
        made.append(Block(tuple(lines), OTHER_FAMILY))
    before = [
        _single(row, label, numbers[row], columns)
        for kind, label in _BEFORE.items()
        for row in rows
        if row.content["kind"] == kind
    ]
    truth = [_single(row, "The truth", numbers[row], columns) for row in rows if row.content["kind"] == "truth"]
    heads = ("", *(_LABELS.get(name, name.replace("_", " ")) for name in columns))
    around = [Block(tuple(before), "Sparse"), *made, Block(tuple(truth), "True")]
    note = f"{_SETTINGS} {_settings(rows)}"
    return Table(caption, heads, tuple(block for block in around if block.lines), (note,))


_SETTINGS = (
    "R@k: the share of trips whose most similar other true trip is among the k most similar recovered ones. Clusters "
    "(DBSCAN) are compared with those of the true trips, mean over eps. Higher is better for all that are marked."
)


def _settings(rows: Sequence[Row]) -> str:
    settings = rows[0].content.get("settings", {})
    eps = settings.get("eps") or []
    about = f"eps {min(eps):g} to {max(eps):g}" if eps else ""
    least = f"min_samples {settings['min_samples']}" if "min_samples" in settings else ""
    return ", ".join(text for text in (about, least) if text).capitalize() + "." if about or least else ""


def _numbers(row: Row, measure: str) -> dict[str, float]:
    found = row.content["measures"].get(measure, {})
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _digits(name: str) -> int:
    return 3 if name in _LABELS else 0


def _single(row: Row, label: str, numbers: dict[str, float], columns: dict[str, None]) -> Line:
    values = []
    for name in columns:
        found = spread([numbers[name]] if name in numbers else [])
        values.append(Value() if found is None else Value(number_with_spread(found, _digits(name)), rows=(row,)))
    return Line(label, tuple(values))
