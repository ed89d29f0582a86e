"""What methods cost: parameters, memory and time, with their accuracy beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tedtrajrec.experiments.reporting import figures
from tedtrajrec.experiments.reporting.page import Block, Line, Part, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import METRICS, family_of
from tedtrajrec.experiments.reporting.performance import Facts, beside_paper, by_place, place
from tedtrajrec.experiments.reporting.results import Result, main_results, number, number_with_spread, spread
from tedtrajrec.experiments.reporting.rows import Row, Slot

PARAMETERS, MACS = "parameters, millions", "MACs of 64 trips, billions"
ANYWHERE = {PARAMETERS, MACS}  # costs that neither depend on the machine nor on what else runs on it


def efficiency_section(
    slots: Sequence[Slot], performance: Sequence[Slot], facts: Mapping[str, Facts], folder: Path
) -> Section | None:
    """Return what methods cost, for each dataset at its densest keep ratio, with their accuracy beside it.

    Parameters
    ----------
    slots
        Cells whose costs are shown; they may be trained for a few epochs only.
    performance
        Cells of the main table, of which the accuracies are.
    facts
        Of datasets by name, as far as they are known.
    folder
        Of the report.
    """
    parts: list[Part] = []
    trained = {where: main_results(found) for where, found in by_place(performance).items()}
    for (dataset, keep), found in _densest(by_place(slots)).items():
        whole_of = trained.get((dataset, keep), {})
        results = {one: whole_of.get(one.method) for one in found if one.rows or whole_of.get(one.method)}
        where = place(dataset, keep, list(results))
        parts.append(_costs_table(results, f"Efficiency, {where}. {beside_paper(dataset, facts)}"))
        kinds = {"time per trip, ms (in batches)": _trip_ms, PARAMETERS: _parameters}
        costs = {
            title: [
                (one.method, value, accuracy)
                for one, whole in results.items()
                if whole and one.rows and (value := cost(one.rows[0])) and (accuracy := whole.metric("accuracy"))
            ]
            for title, cost in kinds.items()
        }
        if all(costs.values()):
            name = f"cost-{dataset}-{keep.replace('/', 'of')}"
            caption = f"Accuracy against cost, {dataset} at keep {keep}; methods without weights are at the left only."
            parts.append(figures.cost_figure(folder, name, costs, caption))
    return Section("Efficiency", parts) if parts else None


def _densest(places: Mapping[tuple[str, str], list[Result]]) -> dict[tuple[str, str], list[Result]]:
    """Return the first place of each dataset that has rows; costs hardly change with the keep ratio."""
    found: dict[str, tuple[str, str]] = {}
    for place_, results in places.items():
        if any(result.rows for result in results):
            found.setdefault(place_[0], place_)
    return {place_: places[place_] for place_ in found.values()}


_COSTS = (
    "Parameters are numbers of weights, not bytes. MACs are multiply-accumulate operations in the matrix products of "
    "recovering a batch of 64 trips, the road network among them once; other work is not counted. Peak memory is that "
    "of training on the GPU. An epoch is the median of all but the first, validation included; where cells ran side by "
    "side, they slowed each other. Time per trip is that of recovering the test trips in batches. F1, accuracy and "
    "RMSE are those of the main table; so are parameters and MACs of a method whose costs have not been measured by "
    "themselves."
)


def _costs_table(results: Mapping[Result, Result | None], caption: str) -> Table:
    shown = [metric for metric in METRICS if metric.name in ("f1", "accuracy", "rmse_m")]
    costs: dict[str, tuple[Callable[[Row], float | None], int]] = {
        PARAMETERS: (_parameters, 2),
        MACS: (lambda row: _per(row.content.get("efficiency", {}).get("macs"), 1e9), 2),
        "peak memory, GiB": (lambda row: _per(row.content.get("training", {}).get("peak_mib"), 1024), 2),
        "epoch, s": (_epoch_s, 1),
        "training, min": (lambda row: _per(row.content.get("training", {}).get("seconds"), 60), 1),
        "per trip, ms": (_trip_ms, 2),
    }
    known = [row for one in results for row in one.rows]
    costs = {name: cost for name, cost in costs.items() if any(cost[0](row) is not None for row in known)}
    blocks = []
    for family, group in itertools.groupby(results, key=lambda one: family_of(one.method)):
        lines = []
        for one in group:
            values = []
            whole = results[one]
            for name, (cost, digits) in costs.items():
                rows = whole.rows if whole and not one.rows and name in ANYWHERE else one.rows
                counted = tuple(row for row in rows if cost(row) is not None)
                found = spread(value for row in counted if (value := cost(row)) is not None)
                values.append(Value() if found is None else Value(number(found.mean, digits), rows=counted))
            for metric in shown:
                mean = None if whole is None else whole.metric(metric.name)
                if whole is None or mean is None:
                    values.append(Value())
                else:
                    values.append(Value(number_with_spread(mean, metric.digits), rows=whole.rows))
            head = f"{one.label} ({one.state})" if one.state else one.label
            lines.append(Line(head, tuple(values)))
        blocks.append(Block(tuple(lines), family))
    machines = dict.fromkeys(row.machine for row in known)
    notes = (_COSTS, f"Machines: {'; '.join(machines)}.")
    columns = ("", *costs, *(metric.label for metric in shown))
    return Table(caption, columns, tuple(blocks), notes)


def _per(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _parameters(row: Row) -> float | None:
    return _per(row.content.get("method", {}).get("parameters") or None, 1e6)


def _trip_ms(row: Row) -> float | None:
    rate = row.metric("trips_per_s")
    return 1000 / rate if rate else None


def _epoch_s(row: Row) -> float | None:
    seconds = [entry["seconds"] for entry in row.content.get("training", {}).get("history", []) if "seconds" in entry]
    return median(seconds[1:] or seconds) if seconds else None
