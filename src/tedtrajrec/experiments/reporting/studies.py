"""The studies beside the main table: robustness, ablations, sensitivity, transfer, training, confidence."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tedtrajrec.data.sampling import keep_share
from tedtrajrec.experiments.plan import Cell
from tedtrajrec.experiments.reporting import figures
from tedtrajrec.experiments.reporting.page import Block, Line, Part, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import label_of
from tedtrajrec.experiments.reporting.performance import Facts, beside_paper, by_place, place
from tedtrajrec.experiments.reporting.results import Result, Spread, number_with_spread, results_of
from tedtrajrec.experiments.reporting.rows import Slot, setting, settings_of
from tedtrajrec.experiments.reporting.tables import marked, results_table

TRANSFER = ("never there", "with a start", "from nothing")
"""Groups of the transfer experiment; ``simulated`` cells are only what it starts from."""


def robustness_section(
    slots: Sequence[Slot], performance: Sequence[Slot], facts: Mapping[str, Facts], folder: Path
) -> Section:
    """Return metrics over keep ratios; performance rows of the same settings fill in their ratios."""
    kinds = {(slot.cell.dataset, _kind(slot.cell)) for slot in slots}
    have = {(slot.cell.dataset, slot.cell.method, slot.cell.keep) for slot in slots}
    more = [
        slot
        for slot in performance
        if (slot.cell.dataset, _kind(slot.cell)) in kinds
        and (slot.cell.dataset, slot.cell.method, slot.cell.keep) not in have
    ]
    parts: list[Part] = []
    for dataset in dict.fromkeys(slot.cell.dataset for slot in slots):
        found = [result for result in results_of([*slots, *more]) if result.dataset == dataset]
        found.sort(key=lambda result: -keep_share(result.keep))
        caption = f"Metrics over the share of steps kept, {dataset}; bars: standard deviation over seeds."
        if any(result.rows for result in found):
            caption = f"{caption} {beside_paper(dataset, facts)}"
            parts.append(figures.robustness_figure(folder, f"robustness-{dataset}", found, caption))
        for keep, group in itertools.groupby(found, key=lambda result: result.keep):
            results = list(group)
            parts.append(results_table(results, f"{place(dataset, keep, results)}."))
    return Section("Robustness", parts)


def _kind(cell: Cell) -> tuple[str, str, frozenset[str]]:
    return cell.method, cell.variant, settings_of(cell)


# ---------------------------------------------------------------------- ablations and sensitivity


def changes(results: Sequence[Result]) -> dict[Result, dict[str, str]]:
    """Return the settings in which each of several results differs from what all of them share, by name."""
    own = {result: settings_of(result.slots[0].cell) for result in results}
    common = frozenset.intersection(*own.values()) if own else frozenset()
    return {result: dict(text.partition("=")[::2] for text in sorted(texts - common)) for result, texts in own.items()}


_ABLATIONS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "Attention": lambda change: "model.attention" in change,
    "Road representation": lambda change: "model.rhythm" in change or change.get("model.gnn") == "none",
    "Graph neural network": lambda change: "model.gnn" in change,
}
"""The paper's three tables, by the setting that variants change."""


def ablation_section(slots: Sequence[Slot], facts: Mapping[str, Facts], folder: Path) -> Section:
    """Return tables of variants below the whole method, the paper's three and one of the rest, and bars of all."""
    parts: list[Part] = []
    for (dataset, keep), found in by_place(slots).items():
        for method, group in itertools.groupby(found, key=lambda result: result.method):
            results = list(group)
            change = changes(results)
            whole = [result for result in results if not change[result]]
            variants = [result for result in results if change[result]]
            taken: set[Result] = set()
            where = f"{label_of(method)}, {place(dataset, keep, results)}. {beside_paper(dataset, facts)}"
            for title, belongs in _ABLATIONS.items():
                chosen = [result for result in variants if belongs(change[result])]
                taken |= set(chosen)
                if chosen:
                    parts.append(_variants_table([*chosen, *whole], f"{title}: {where}"))
            rest = [result for result in variants if result not in taken]
            if rest:
                parts.append(_variants_table([*rest, *whole], f"Parts: {where}"))
            bars = [(result.variant, result, whole[0]) for result in variants if whole and result.rows]
            if bars and whole[0].rows:
                name = f"ablation-{dataset}-{method}-{keep.replace('/', 'of')}"
                caption = (
                    f"Variants of {label_of(method)} on {dataset} at keep {keep}, against {whole[0].label}. Bars: one "
                    "standard error over trips, paired where trips were kept. Orange is worse."
                )
                parts.append(figures.ablation_figure(folder, name, bars, caption))
    return Section("Ablations", parts)


def _variants_table(results: Sequence[Result], caption: str) -> Table:
    return results_table(results, caption, heads=lambda one: one.variant or one.label, blocks=lambda _: "")


def sensitivity_section(slots: Sequence[Slot], facts: Mapping[str, Facts], folder: Path) -> Section:
    """Return metrics over the values of each setting that is varied, in figures and tables."""
    parts: list[Part] = []
    for (dataset, keep), found in by_place(slots).items():
        for method, group in itertools.groupby(found, key=lambda result: result.method):
            results = list(group)
            change = changes(results)
            plain = [result for result in results if not change[result]]
            panels: dict[str, list[tuple[str, Result]]] = {}
            for result in results:
                for key, value in change[result].items():
                    panels.setdefault(key, []).append((value, result))
            for key, points in panels.items():
                points += [(text, one) for one in plain if (text := _in_use(one, key)) is not None]
                points.sort(key=lambda point: _sortable(point[0]))
            drawn = {key: points for key, points in panels.items() if any(result.rows for _, result in points)}
            where = f"{label_of(method)}, {place(dataset, keep, results)}. {beside_paper(dataset, facts)}"
            if drawn:
                name = f"sensitivity-{dataset}-{method}-{keep.replace('/', 'of')}"
                caption = f"Settings of {where} Solid lines: higher is better; dashed, right axis: lower is better."
                parts.append(figures.sensitivity_figure(folder, name, drawn, caption))
            for key, points in panels.items():
                texts = {result: text for text, result in points}
                ordered = [result for _, result in points]
                parts.append(results_table(ordered, f"{key}: {where}", heads=texts.__getitem__, blocks=lambda _: ""))
    return Section("Sensitivity", parts)


def _in_use(result: Result, key: str) -> str | None:
    """Return a setting of a model from its rows, as settings are written."""
    part, _, name = key.partition(".")
    value: Any = result.rows[0].content["method"].get(name) if part == "model" and result.rows else None
    if value is None:
        return setting(result.slots[0].cell, key)
    return value if isinstance(value, str) else json.dumps(value)


def _sortable(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text


# ---------------------------------------------------------------------- transfer, training and confidence


def transfer_section(slots: Sequence[Slot], folder: Path) -> Section:
    """Return how well a model does that has seen few or no trips of a city, with a start from elsewhere and without."""
    parts: list[Part] = []
    for dataset, keep in by_place(slots):
        chosen = [slot for slot in slots if (slot.cell.dataset, slot.cell.keep) == (dataset, keep)]
        groups = {
            group: results_of(slot for slot in chosen if slot.cell.group == group)
            for group in dict.fromkeys(slot.cell.group for slot in chosen)
        }
        group_of = {result: group for group, results in groups.items() for result in results}
        some = sorted({trips for result in group_of if (trips := _trips(result))})
        everything = 10 * max(some, default=100)  # where all trips are drawn: their number is not in the rows
        curves: dict[str, list[tuple[int, Result]]] = {}
        for result, group in group_of.items():
            if result.rows and group != "never there":
                curves.setdefault(group, []).append((_trips(result) or everything, result))
            elif result.rows and not result.slots[0].cell.train:
                curves.setdefault("with a start", []).append((0, result))
        where = place(dataset, keep, list(group_of))
        if curves:
            labels = {0: "none", **{size: f"{size:,}" for size in some}, everything: "all"}
            caption = f"Metrics over the number of training trips of the city, {where}."
            parts.append(figures.learning_figure(folder, f"transfer-{dataset}", curves, labels, caption))
        parts.append(results_table(list(group_of), f"Transfer to {where}.", blocks=group_of.__getitem__))
    return Section("Another city", parts)


def _trips(result: Result) -> int:
    """Return the number of training trips that a result is limited to; 0 for all."""
    return int(setting(result.slots[0].cell, "train.most_train") or 0)


def training_section(slots: Sequence[Slot], folder: Path) -> Section | None:
    """Return validation accuracy and loss over epochs of all rows that were trained."""
    parts: list[Part] = []
    for (dataset, keep), found in by_place(slots).items():
        trained = [one for one in found if one.rows and one.rows[0].content.get("training", {}).get("history")]
        if trained:
            name = f"training-{dataset}-{keep.replace('/', 'of')}"
            caption = f"Training on {dataset} at keep {keep}: a line for each seed, the first one in full colour."
            parts.append(figures.training_figure(folder, name, trained, caption))
    return Section("Training", parts) if parts else None


_CONFIDENCE = {
    # metric: heading, digits, whether higher is better (None: neither)
    "ece": ("calibration error", 3, False),
    "ece_missing": ("of missing steps", 3, False),
    "brier": ("Brier score", 3, False),
    "accuracy_at_50": ("accuracy of the surest 50 %", 3, True),
    "accuracy_at_80": ("80 %", 3, True),
    "accuracy_at_95": ("95 %", 3, True),
    "true_route_in_1": ("true route is the first", 3, True),
    "true_route_in_5": ("among five", 3, True),
}
_DRIVABLE = {
    "drivable": ("trips that can be driven", 3, True),
    "drivable_120kmh": ("at 120 km/h", 3, True),
    "breaks_per_trip": ("breaks a trip", 2, False),
    "accuracy_observed": ("accuracy of observed steps", 3, True),
    "accuracy_missing": ("of missing steps", 3, True),
    "accuracy_no_route": ("of gaps without a route", 3, True),
}


def confidence_section(slots: Sequence[Slot], folder: Path) -> Section | None:
    """Return how well methods know what they know, and whether their trips can be driven."""
    parts: list[Part] = []
    for (dataset, keep), found in by_place(slots).items():
        where = place(dataset, keep, found)
        sure = [one for one in found if one.metric("ece") is not None]
        if sure:
            parts.append(_metrics_table(sure, _CONFIDENCE, f"Confidence, {where}."))
            name = f"coverage-{dataset}-{keep.replace('/', 'of')}"
            caption = f"Accuracy of the most confident steps, {dataset} at keep {keep}."
            parts.append(figures.coverage_figure(folder, name, sure, caption))
        told = [one for one in found if one.metric("drivable") is not None]
        if told:
            parts.append(
                _metrics_table(told, _DRIVABLE, f"Trips that can be driven, and where steps are right, {where}.")
            )
    return Section("Confidence and drivable trips", parts) if parts else None


def _metrics_table(results: Sequence[Result], columns: Mapping[str, tuple[str, int, bool]], caption: str) -> Table:
    table: list[list[Value]] = []
    for metric, (_, digits, higher) in columns.items():
        found: list[Spread | None] = [one.metric(metric) for one in results]
        texts = [
            Value() if value is None else Value(number_with_spread(value, digits), rows=one.rows)
            for one, value in zip(results, found, strict=True)
        ]
        final = [value if one.final else None for one, value in zip(results, found, strict=True)]
        table.append(marked(final, texts, higher=higher))
    lines = [
        Line(f"{one.label} ({one.state})" if one.state else one.label, values)
        for one, values in zip(results, zip(*table, strict=True), strict=True)
    ]
    return Table(caption, ("", *(head for head, _, _ in columns.values())), (Block(tuple(lines)),))
