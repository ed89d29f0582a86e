"""Tables of results: means and spread over seeds, the best and the second marked, and improvements as in the paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tedtrajrec.experiments.reporting.page import Block, Line, Mark, Table, Value
from tedtrajrec.experiments.reporting.paper import METRICS, PUBLISHED, Metric, family_of, label_of
from tedtrajrec.experiments.reporting.results import Result, Spread, main_results, number, number_with_spread
from tedtrajrec.experiments.reporting.significance import bootstrap_interval, holm, sign_flip_test

ALPHA = 0.05
NOT_DISTINGUISHABLE = "†"
MARGINS = tuple(metric for metric in METRICS if metric.name in ("accuracy", "f1", "mae_m"))

_MARKED = "Best in bold, second underlined; unfinished rows do not compete."
_TESTED = (
    f"{NOT_DISTINGUISHABLE} cannot be told from the best of its column (paired sign-flip test over trips, "
    f"p ≥ {ALPHA:g} after Holm's correction within the column). Rows whose trips were not kept are not tested."
)
_IMPROVED = "Improvements are relative, over the best of the methods that have a finished row here."
_MARGINS = (
    "Margins are differences of means, with the sign by which more is better for every metric. ± combines the "
    "standard deviations over seeds of both methods; one with a single seed adds nothing. Interval: paired bootstrap "
    "over trips; p: paired sign-flip test over trips; both on each trip's mean over seeds, empty where trips were not "
    "kept."
)


@dataclass(frozen=True)
class Comparison:
    """A row of improvements: one method over the best of others."""

    title: str
    method: str
    others: Callable[[str], bool]


COMPARISONS = (
    Comparison("TedTrajRec over the best other published", "tedtrajrec", lambda name: name in PUBLISHED),
    Comparison("tedtrajrec_parallel over the best of all others", "tedtrajrec_parallel", lambda _: True),
)
"""As the last row of the paper's main table."""

MARGIN_COMPARISONS = (
    *COMPARISONS,
    Comparison("TedTrajRec over route_hmm", "tedtrajrec", lambda name: name == "route_hmm"),
    Comparison("tedtrajrec_parallel over route_hmm", "tedtrajrec_parallel", lambda name: name == "route_hmm"),
)


def results_table(
    results: Sequence[Result],
    caption: str,
    *,
    draw: str = "test",
    heads: Callable[[Result], str] | None = None,
    blocks: Callable[[Result], str] | None = None,
    improvements: bool = False,
) -> Table:
    """Return a table with a line for each result and the paper's six metrics.

    Parameters
    ----------
    results
        All of one dataset and keep ratio.
    caption
        What it shows.
    draw
        Which evaluation of the rows.
    heads, blocks
        The name of a result and of the block of lines it is in; its label, and its family, if not given.
    improvements
        Whether to add :data:`COMPARISONS` below.
    """
    name, block = heads or (lambda result: result.label), blocks or (lambda result: family_of(result.method))
    unclear = _unclear(results) if draw == "test" else {}
    marks = {metric.name: _marks(results, metric, draw) for metric in METRICS}
    groups = []
    for title, group in itertools.groupby(results, key=block):
        lines = []
        for result in group:
            values = [_value(result, metric, draw, marks[metric.name].get(result, ""), unclear) for metric in METRICS]
            head = f"{name(result)} ({result.state})" if result.state else name(result)
            lines.append(Line(head, (*values, Value(result.seeds, rows=result.rows))))
        groups.append(Block(tuple(lines), title))
    gains = []
    if improvements:
        gains = [line for comparison in COMPARISONS if (line := _improvement(results, comparison, draw)) is not None]
        if gains:
            groups.append(Block(tuple(gains), "Improvement"))
    notes = [
        *([_MARKED] if any(marks.values()) else []),
        *([_IMPROVED] if gains else []),
        *([_TESTED] if unclear else []),
        *_other_draws(results),
    ]
    if draw == "test" and not unclear and sum(result.final for result in results) > 1:
        notes.append("No paired test: the trips of these rows were not kept.")
    return Table(caption, ("", *(metric.label for metric in METRICS), "seeds"), tuple(groups), tuple(notes))


def _value(result: Result, metric: Metric, draw: str, mark: Mark, unclear: dict[tuple[Result, str], float]) -> Value:
    found = result.metric(metric.name, draw)
    if found is None:
        return Value()
    p = unclear.get((result, metric.name))
    text = number_with_spread(found, metric.digits)
    if p is None or mark == "best":
        return Value(text, mark, result.rows)
    flag = f" {NOT_DISTINGUISHABLE}" if p >= ALPHA else ""
    return Value(text + flag, mark, result.rows, f"p {_p(p)} against the best")


def _marks(results: Sequence[Result], metric: Metric, draw: str) -> dict[Result, Mark]:
    """Return which results are best and second, by what is printed: equal ones share the mark."""
    final = {
        result: round(value.mean, metric.digits)
        for result in results
        if result.final and (value := result.metric(metric.name, draw)) is not None
    }
    ranks = sorted(set(final.values()), reverse=metric.higher)
    if len(final) < 2:
        return {}
    marks: dict[float, Mark] = dict(zip(ranks, ("best", "second"), strict=False))
    return {result: marks[value] for result, value in final.items() if value in marks}


def best(results: Sequence[Result], metric: Metric, draw: str = "test") -> Result | None:
    """Return the best finished result."""
    values = {result: value.mean for result in results if result.final and (value := result.metric(metric.name, draw))}
    choose = max if metric.higher else min
    return choose(values, key=values.__getitem__) if values else None


def _contest(
    results: Sequence[Result], comparison: Comparison, metric: Metric, draw: str
) -> tuple[Result, Result] | None:
    """Return the method of a comparison and the best of the others, where both are finished."""
    plain = [result for result in results if not result.variant and result.final]
    own = main_results(plain).get(comparison.method)
    others = [result for result in plain if result.method != comparison.method and comparison.others(result.method)]
    other = best(others, metric, draw)
    return None if own is None or other is None else (own, other)


def gain(own: float, other: float, metric: Metric) -> float:
    """Return the relative improvement in percent, positive for better; the other one is 100 %.

    The paper does the same for most metrics; four of its errors are divided by TedTrajRec's own value.
    """
    return 100 * (own - other if metric.higher else other - own) / other


def _improvement(results: Sequence[Result], comparison: Comparison, draw: str) -> Line | None:
    values = []
    for metric in METRICS:
        pair = _contest(results, comparison, metric, draw)
        means = [] if pair is None else [one.metric(metric.name, draw) for one in pair]
        if pair is None or not all(means):
            values.append(Value())
            continue
        own, other = (mean.mean for mean in means if mean is not None)
        text = f"{gain(own, other, metric):+.1f} %"
        values.append(Value(text, rows=(*pair[0].rows, *pair[1].rows), hint=f"over {label_of(pair[1].method)}"))
    return Line(comparison.title, (*values, Value()), summary=True) if any(value.text for value in values) else None


# ---------------------------------------------------------------------- tests over trips


def _unclear(results: Sequence[Result]) -> dict[tuple[Result, str], float]:
    """Return corrected p-values of each finished result against the best of each column, where trips were kept."""
    out: dict[tuple[Result, str], float] = {}
    for metric in METRICS:
        leader = best(results, metric)
        if leader is None or leader.trips is None:
            continue
        differences = {
            rival: difference
            for rival in results
            if rival is not leader
            and rival.final
            and rival.trips is not None
            and (difference := leader.trips.minus(rival.trips, metric)) is not None
        }
        if differences:
            p = holm(sign_flip_test(np.column_stack(list(differences.values()))))
            out |= {(rival, metric.name): float(value) for rival, value in zip(differences, p, strict=True)}
    return out


def _other_draws(results: Sequence[Result]) -> list[str]:
    draws: dict[str, list[str]] = {}
    for result in results:
        for draw in result.draws:
            draws.setdefault(draw, []).append(result.label)
    if len(draws) < 2:
        return []
    named = "; ".join(f"{draw}: {', '.join(labels)}" for draw, labels in draws.items())
    return [f"Not all rows are of the same observed steps, so small differences mean nothing. By draw: {named}."]


def margins_table(results: Sequence[Result], caption: str) -> Table | None:
    """Return absolute margins in accuracy, F1 and MAE with their spread over seeds and over trips; None for none.

    Parameters
    ----------
    results
        All of one dataset and keep ratio.
    caption
        What it shows.
    """
    blocks = []
    for comparison in MARGIN_COMPARISONS:
        lines = []
        for metric in MARGINS:
            pair = _contest(results, comparison, metric, "test")
            if pair is not None:
                lines.append(_margin(*pair, metric))
        if lines:
            blocks.append(Block(tuple(lines), comparison.title))
    columns = ("", "over", "margin", "± over seeds", "95 % over trips", "p")
    return Table(caption, columns, tuple(blocks), (_MARGINS,)) if blocks else None


def _margin(own: Result, other: Result, metric: Metric) -> Line:
    a, b = own.metric(metric.name), other.metric(metric.name)
    rows = (*own.rows, *other.rows)
    if a is None or b is None:
        return Line(metric.label, (Value(label_of(other.method)), *[Value()] * 4))
    sign = 1.0 if metric.higher else -1.0
    deviation = np.sqrt(np.nansum(np.square([a.deviation, b.deviation])))
    values = [
        Value(label_of(other.method)),
        Value(number(sign * (a.mean - b.mean), metric.digits, sign=True), rows=rows),
        Value(number(float(deviation), metric.digits) if max(a.n, b.n) > 1 else "", rows=rows),
    ]
    difference = None if own.trips is None or other.trips is None else own.trips.minus(other.trips, metric)
    if difference is None:
        return Line(metric.label, (*values, Value(), Value()))
    difference = sign * difference[:, None]
    _, low, high = bootstrap_interval(difference)
    interval = " to ".join(number(float(bound[0]), metric.digits, sign=True) for bound in (low, high))
    p = _p(float(sign_flip_test(difference)[0]))
    return Line(metric.label, (*values, Value(interval, rows=rows), Value(p, rows=rows)))


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else number(value, 3)


# ---------------------------------------------------------------------- plain tables


def plain_table(caption: str, columns: Sequence[str], lines: Sequence[Sequence[str | Value]], *notes: str) -> Table:
    """Return a table of one block from texts and values; the first of each line is its head."""
    made = [
        Line(str(head), tuple(value if isinstance(value, Value) else Value(value) for value in values))
        for head, *values in lines
    ]
    return Table(caption, tuple(columns), (Block(tuple(made)),), notes)


def marked(values: Sequence[Spread | None], texts: Sequence[Value], *, higher: bool) -> list[Value]:
    """Return values of a column with the best and the second marked."""
    ranks = sorted({value.mean for value in values if value is not None}, reverse=higher)
    marks: dict[float, Mark] = dict(zip(ranks, ("best", "second"), strict=False)) if len(ranks) > 1 else {}
    return [
        text if value is None else replace(text, mark=marks.get(value.mean, ""))
        for value, text in zip(values, texts, strict=True)
    ]
