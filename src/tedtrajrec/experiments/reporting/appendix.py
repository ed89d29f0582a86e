"""What stands around the studies: datasets, rows of other kinds, handed-in pictures, commands and versions."""

from __future__ import annotations

import math
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tedtrajrec.data.dataset import SPLITS
from tedtrajrec.errors import InputError
from tedtrajrec.experiments.hmm_interval import Row as IntervalRow
from tedtrajrec.experiments.hmm_interval_plot import plot_rows
from tedtrajrec.experiments.plan import Plan
from tedtrajrec.experiments.reporting.figures import FOLDER
from tedtrajrec.experiments.reporting.page import Block, Commands, Line, Part, Picture, Section, Table, Value
from tedtrajrec.experiments.reporting.paper import DATASETS, family_of, label_of, order_of
from tedtrajrec.experiments.reporting.performance import Facts
from tedtrajrec.experiments.reporting.results import number, results_of, spread
from tedtrajrec.experiments.reporting.rows import Results, Row, Slot
from tedtrajrec.experiments.reporting.tables import plain_table
from tedtrajrec.experiments.reporting.uses import KIND as USES
from tedtrajrec.experiments.reporting.uses import uses_section
from tedtrajrec.files import existing_file, replacing

PICTURE = "picture"
"""Kind of a row that hands in a picture: ``file`` (a PNG beside it), ``title`` of its chapter, ``caption``, ``alt``."""

_NAMES = ("dataset", "keep", "method", "variant", "seed")  # what a row is of, not what was measured


def datasets_section(slots: Sequence[Slot], facts: Mapping[str, Facts]) -> Section:
    """Return the table of datasets beside the paper's, and what keep ratios come to on their test trips."""
    parts: list[Part] = []
    if facts:
        lines = [
            (name, *_counts(one.step_s, one.segments, *(one.trips.get(split, 0) for split in SPLITS)), one.source)
            for name, one in facts.items()
        ]
        lines += [
            (f"{one.label} of the paper", *_counts(one.step_s, one.segments, one.train, one.valid, one.test), one.area)
            for one in DATASETS.values()
        ]
        columns = ("dataset", "step, s", "segments", "training trips", "validation", "test", "source or area")
        parts.append(plain_table("Datasets, and those of the paper.", columns, lines))
    seen: dict[tuple[str, str, str], list[Row]] = {}
    for slot in slots:
        if slot.row is not None:
            for draw, name in slot.row.content.get("draws", {}).items():
                seen.setdefault((slot.cell.dataset, slot.cell.keep, f"{draw}, {name}"), []).append(slot.row)
    lines_of_draws: list[tuple[str | Value, ...]] = []
    for (dataset, keep, name), rows in seen.items():
        draw = name.partition(",")[0]
        values = [rows[0].metric(metric, draw) for metric in ("n_trips", "n_steps", "mean_fixes", "effective_share")]
        texts = [
            "" if v is None else form.format(v)
            for v, form in zip(values, ("{:,.0f}", "{:,.0f}", "{:.1f}", "{:.1%}"), strict=True)
        ]
        lines_of_draws.append((dataset, keep, name, *(Value(text, rows=(rows[0],)) for text in texts), str(len(rows))))
    given = ("dataset", "keep", "draw", "trips", "steps", "fixes a trip", "share of steps", "rows")
    note = (
        "keep is the nominal share of inner steps; ends are always kept, so that short trips keep more. A draw is "
        "named by the hash of its trips, fixes, truth and observed steps: rows of other draws are not comparable."
    )
    parts.append(plain_table("What methods were given on test trips.", given, lines_of_draws, note))
    return Section("Datasets", parts)


def _counts(*values: int) -> list[str]:
    return [f"{value:,}" for value in values]


# ---------------------------------------------------------------------- rows of other kinds


def other_sections(results: Results, folder: Path) -> list[Section]:
    """Return sections of rows that are no cells: pictures, matching by interval, and tables of what others hold."""
    sections: dict[str, list[Part]] = {}
    kinds: dict[str, list[Row]] = {}
    for row in results.others:
        kind = str(row.content.get("kind") or row.content["experiment"])
        if kind == PICTURE:
            title = str(row.content.get("title", "Pictures"))
            sections.setdefault(title, []).append(_picture(row, folder))
        elif kind == "hmm-interval":
            sections.setdefault("Matching by interval", []).extend(_intervals(row, folder))
        else:
            kinds.setdefault(kind, []).append(row)
    uses = uses_section(kinds.pop(USES, []))
    for kind, rows in kinds.items():
        sections.setdefault(kind.replace("_", " ").capitalize(), []).extend(_kind_tables(kind, rows))
    return [*([uses] if uses else []), *(Section(title, parts) for title, parts in sections.items())]


def _picture(row: Row, folder: Path) -> Picture:
    given = row.content.get("file")
    if not given:
        raise InputError("it hands in a picture but names no file", file=row.path, field="file")
    source = existing_file(row.path.parent / str(given), "a picture")
    if source.suffix.lower() != ".png":
        raise InputError("a picture is handed in as PNG", file=source, remedy="Write it as .png.")
    names = {"png": source, "svg": source.with_suffix(".svg")}
    placed = {}
    for kind, path in names.items():
        if path.exists():
            placed[kind] = Path(FOLDER) / f"{row.path.stem}.{kind}"
            with replacing(folder / placed[kind]) as beside:
                shutil.copyfile(path, beside)
    caption = str(row.content.get("caption", source.stem))
    return Picture(caption, str(row.content.get("alt", caption)), placed["png"], placed.get("svg"))


def _intervals(row: Row, folder: Path) -> list[Part]:
    rows = [IntervalRow(**one) for one in row.content["rows"]]
    name = f"{row.path.stem}-{row.content['dataset']}"
    for kind in ("png", "svg"):
        plot_rows(rows, folder / FOLDER / f"{name}.{kind}", title=str(row.content["dataset"]))
    intervals = sorted({one.interval_s for one in rows})
    lines: list[tuple[str | Value, ...]] = []
    for preset in dict.fromkeys(one.preset for one in rows):
        found = {one.interval_s: one for one in rows if one.preset == preset}
        texts = [
            f"{number(found[s].accuracy, 3)} ± {number(found[s].accuracy_se, 3)}" if s in found else ""
            for s in intervals
        ]
        lines.append((preset, *(Value(text, rows=(row,)) for text in texts)))
    paper = row.content["paper"]["accuracy"]
    lines.append(
        (
            f"the paper, {row.content['paper']['dataset']}",
            *(number(paper[str(s)], 3) if str(s) in paper else "" for s in intervals),
        )
    )
    caption = (
        f"Share of fixes that a matcher puts on the true segment, by seconds between them, {row.content['dataset']}."
    )
    picture = Picture(
        caption,
        "Accuracy of matching over the interval, a line for each matcher.",
        Path(FOLDER) / f"{name}.png",
        Path(FOLDER) / f"{name}.svg",
    )
    return [
        plain_table(
            caption, ("", *(f"{s} s" for s in intervals)), lines, "± standard error over trips.", row.content["note"]
        ),
        picture,
    ]


def _kind_tables(kind: str, rows: Sequence[Row]) -> list[Part]:
    """Return a table for each dataset and keep ratio: a line for each method, a column for each number of the rows."""
    groups: dict[tuple[str, str], dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        name = {key: str(row.content.get("cell", row.content).get(key, "")) for key in _NAMES}
        group = groups.setdefault((name["dataset"], name["keep"]), {})
        group.setdefault((name["method"], name["variant"]), []).append(row)
    tables: list[Part] = []
    for (dataset, keep), methods in groups.items():
        numbers = {
            row: dict(_numbers(row.content.get("metrics") or row.content))
            for found in methods.values()
            for row in found
        }
        columns = dict.fromkeys(column for found in numbers.values() for column in found)
        families: dict[str, list[Line]] = {}
        for (method, variant), found in sorted(methods.items(), key=lambda item: order_of(item[0][0])):
            values = [_over_seeds(found, [numbers[row].get(column) for row in found]) for column in columns]
            head = f"{label_of(method)}, {variant}" if variant else label_of(method)
            families.setdefault(family_of(method), []).append(Line(head or kind, tuple(values)))
        where = " at keep ".join(part for part in (dataset, keep) if part)
        caption = f"{kind.replace('_', ' ').capitalize()}{f', {where}' if where else ''}."
        blocks = tuple(Block(tuple(lines), family) for family, lines in families.items())
        heads = (column.replace("_", " ") for column in columns)
        tables.append(Table(caption, ("", *heads), blocks if len(blocks) > 1 else (Block(blocks[0].lines),)))
    return tables


def _numbers(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if name in _NAMES or name in ("cell", "machine", "versions", "settings", "config"):
            continue
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{before}{name}", float(value)


def _over_seeds(rows: Sequence[Row], values: Sequence[float | None]) -> Value:
    found = spread(value for value in values if value is not None)
    if found is None:
        return Value()
    text = _short(found.mean)
    return Value(text if math.isnan(found.deviation) else f"{text} ± {_short(found.deviation)}", rows=tuple(rows))


def _short(value: float) -> str:
    """Return a number of any size: shares with three decimals, whole numbers whole, others with four digits."""
    if abs(value) <= 1:
        return number(value, 3)
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1e4 else f"{value:,.4g}"


# ---------------------------------------------------------------------- commands and versions


def commands_section(
    results: Results, slots: Sequence[Slot], plans: Sequence[tuple[str, Plan]], sources: Sequence[str]
) -> Section:
    """Return how all this was computed: commands, versions and machines, and what is missing or was left out.

    Parameters
    ----------
    results, slots
        What is in the report.
    plans
        With the names of their files.
    sources
        Names of the folders of rows.
    """
    folder = shlex.quote(sources[0])
    places = [(name, list(plan.datasets)) for name, plan in plans]
    places = places or [("PLAN.toml", list(dict.fromkeys(slot.cell.dataset for slot in slots)))]
    given = list(dict.fromkeys(str(row.content["command"]) for row in results.rows if row.content.get("command")))
    for name, datasets in places if not given else ():
        where = " ".join(f"--dataset {shlex.quote(dataset)}=..." for dataset in datasets)
        given.append(f"tedtrajrec benchmark {shlex.quote(name)} -o {folder} {where}")
    shown = "".join(f" --plan {shlex.quote(name)}" for name, _ in plans)
    parts: list[Part] = ["Cells that have no row are run by the same commands; those that have one are not run again."]
    parts.append(Commands("\n".join([*given, f"tedtrajrec report {shlex.join(sources)} -o report/{shown}"])))
    used = Counter((row.machine, _versions(row)) for row in results.rows)
    lines = [(machine, versions, str(count)) for (machine, versions), count in used.items()]
    parts.append(plain_table("Machines and versions.", ("machine", "versions", "rows"), lines))
    empty = Counter(f"{slot.cell.group}, {slot.cell.dataset}" for slot in slots if slot.row is None)
    unfinished = [f"{row.path.stem} ({row.epochs})" for row in results.cells if not row.finished]
    parts.append(_counted("cells of the plans are not computed", empty))
    parts.append(_counted("rows are of unfinished trainings", Counter(unfinished)))
    parts.append(
        _counted("rows have a finished or later one of the same cell and were not used", Counter(results.replaced))
    )
    parts.append(_counted("files are no rows and were left out", Counter(results.ignored)))
    return Section("Commands and versions", parts)


def _versions(row: Row) -> str:
    return ", ".join(f"{name} {version}" for name, version in row.content.get("versions", {}).items())


def _counted(what: str, names: Mapping[str, int]) -> str:
    listed = "; ".join(f"{name}: {count}" if count > 1 else name for name, count in names.items())
    return f"{sum(names.values())} {what}{f': {listed}' if listed else ''}."


def counted(slots: Sequence[Slot]) -> str:
    """Return how many cells, methods and datasets there are, as a sentence."""
    computed = [slot for slot in slots if slot.row is not None]
    results = [result for result in results_of(computed) if result.rows]
    methods, datasets = ({getattr(one, key) for one in results} for key in ("method", "dataset"))
    return f"{len(computed)} of {len(slots)} cells computed: {len(methods)} methods on {len(datasets)} datasets."
