"""The paper's main table, margins, and our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tedtrajrec.data.sampling import keep_share
from tedtrajrec.experiments.reporting.page import Block, Line, Part, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import DATASETS, METRICS, TABLE, Metric, label_of
from tedtrajrec.experiments.reporting.results import Floats, Result, main_results, number, results_of
from tedtrajrec.experiments.reporting.rows import Slot
from tedtrajrec.experiments.reporting.tables import gain, margins_table, results_table


@dataclass(frozen=True)
class Facts:
    """What is known of a prepared dataset."""

    step_s: int
    segments: int
    time_zone: str
    source: str
    trips: Mapping[str, int]  # by split


def performance_section(slots: Sequence[Slot], facts: Mapping[str, Facts]) -> Section | None:
    """Return the main table for each dataset and keep ratio, margins, and what the paper has; None without cells.

    Parameters
    ----------
    slots
        Cells of the group ``performance``.
    facts
        Of datasets by name, as far as they are known.
    """
    parts: list[Part] = []
    for (dataset, keep), results in by_place(slots).items():
        where = place(dataset, keep, results)
        caption = f"Recovery of {where}. {beside_paper(dataset, facts)}".strip()
        parts.append(results_table(results, caption, improvements=True))
        margins = margins_table(results, f"Margins: {where}.")
        if margins is not None:
            parts.append(margins)
        if any(result.metric("accuracy", "fixed") for result in results):
            fixed = f"The same on the prescribed draw of {where_fixed(dataset, keep, results)}."
            parts.append(results_table(results, fixed, draw="fixed", improvements=True))
        paper = paper_table(dataset, keep, results)
        if paper is not None:
            parts.append(paper)
    return Section("Performance", parts) if parts else None


def by_place(slots: Sequence[Slot]) -> dict[tuple[str, str], list[Result]]:
    """Return results by dataset, in the order of the slots, and keep ratio, the denser one first."""
    places = dict.fromkeys((slot.cell.dataset, slot.cell.keep) for slot in slots)
    datasets = list(dict.fromkeys(dataset for dataset, _ in places))
    ordered = sorted(places, key=lambda place: (datasets.index(place[0]), -keep_share(place[1])))
    found: dict[tuple[str, str], list[Result]] = {place: [] for place in ordered}
    for result in results_of(slots):
        found[result.dataset, result.keep].append(result)
    return found


def place(dataset: str, keep: str, results: Sequence[Result], draw: str = "test") -> str:
    """Return dataset and keep ratio with what they come to: trips, the effective share and fixes of a trip."""
    row = next((row for result in results for row in result.rows if row.metric("n_trips", draw)), None)
    if row is None:
        return f"{dataset} at keep {keep}"
    trips, share, fixes = (row.metric(name, draw) or 0.0 for name in ("n_trips", "effective_share", "mean_fixes"))
    return f"{dataset} at keep {keep} ({trips:,.0f} trips, {fixes:.1f} fixes a trip, {share:.1%} of the steps)"


def where_fixed(dataset: str, keep: str, results: Sequence[Result]) -> str:
    """Return the place of the prescribed draw."""
    return place(dataset, keep, [one for one in results if one.metric("n_trips", "fixed")], "fixed")


def beside_paper(dataset: str, facts: Mapping[str, Facts]) -> str:
    """Return what differs from the paper's dataset of the same name; empty where the paper has none."""
    paper, own = DATASETS.get(dataset), facts.get(dataset)
    if paper is None:
        return "The paper has no such dataset."
    theirs = f"{paper.step_s} s steps, {paper.segments:,} segments and {paper.train:,} training trips"
    if own is None:
        return f"The paper's {paper.label} has {theirs}."
    ours = f"{own.step_s} s steps, {own.segments:,} segments and {own.trips.get('train', 0):,} training trips"
    return f"Our {paper.label} has {ours}; the paper's has {theirs}."


def paper_table(dataset: str, keep: str, results: Sequence[Result]) -> Table | None:
    """Return accuracy and F1 of the paper and of ours with their ranks, or None where fewer than two can be compared.

    Improvements of TedTrajRec over the best other method stand below, for methods that both have.
    """
    published = TABLE.get((dataset, keep), {})
    own = main_results(result for result in results if result.final)
    both = [method for method in published if method in own]
    if len(both) < 2:
        return None
    chosen = [(k, metric) for k, metric in enumerate(METRICS) if metric.name in ("accuracy", "f1", "mae_m")]
    cells = {method: list[Value]() for method in both}
    columns, notes, gains = [""], list[str](), list[Value]()
    for k, metric in chosen:
        columns += [f"{metric.label}: paper", "ours"]
        means = [own[method].metric(metric.name) for method in both]
        theirs = np.array([published[method][k] for method in both])
        ours = np.array([np.nan if mean is None else mean.mean for mean in means])
        for value, rows in ((theirs, False), (ours, True)):
            rank = stats.rankdata(-value if metric.higher else value, method="min", nan_policy="omit")
            for i, method in enumerate(both):
                text = f"{number(float(value[i]), metric.digits)} ({rank[i]:.0f})"
                cells[method].append(Value(text, rows=own[method].rows if rows else ()))
            gains.append(Value(_gain(both, value, metric)))
        if len(both) > 2:
            notes.append(f"{metric.label} {number(float(stats.spearmanr(theirs, ours)[0]), 2)}")
    blocks = [Block(tuple(Line(label_of(method), tuple(cells[method])) for method in both))]
    if any(value.text for value in gains):
        blocks.append(Block((Line("TedTrajRec over the best of these", tuple(gains), summary=True),)))
    said = (f"Rank correlation (Spearman) of ours with the paper's: {', '.join(notes)}.",) if notes else ()
    return Table(
        f"Order of methods, {dataset} at keep {keep}: the paper's and ours, ranks in brackets.",
        tuple(columns),
        tuple(blocks),
        said,
    )


def _gain(methods: Sequence[str], values: Floats, metric: Metric) -> str:
    if "tedtrajrec" not in methods:
        return ""
    at = methods.index("tedtrajrec")
    others = np.delete(values, at)
    best = np.nanmax(others) if metric.higher else np.nanmin(others)
    return f"{gain(float(values[at]), float(best), metric):+.1f} %"
