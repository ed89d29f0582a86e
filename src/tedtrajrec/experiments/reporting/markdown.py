"""A report as Markdown, with its pictures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tedtrajrec.experiments.reporting.page import Commands, Line, Part, Picture, Report, Table, Value
from tedtrajrec.experiments.reporting.rows import Row


def markdown_text(report: Report) -> str:
    """Return a report as Markdown; the last column of a table leads to the rows its numbers were computed from."""
    parts = [f"# {report.title}", report.intro]
    for section in report.sections:
        parts += [f"## {section.title}", *(_part(part) for part in section.parts)]
    parts += ["## Rows", _rows(report.rows)]
    return "\n\n".join(parts) + "\n"


def _part(part: Part) -> str:
    match part:
        case Table():
            return _table(part)
        case Picture():
            return f"![{_plain(part.alt)}]({part.png.as_posix()})\n\n*{part.caption}*"
        case Commands():
            return "\n".join(f"    {line}".rstrip() for line in part.text.splitlines())
        case _:
            return part


def _table(table: Table) -> str:
    grouped = any(block.title for block in table.blocks)
    referred = any(value.rows for block in table.blocks for line in block.lines for value in line.values)
    columns = [*([""] if grouped else []), *table.columns, *(["rows"] if referred else [])]
    lines = [_cells(columns), _cells(["---"] * len(columns))]
    for block in table.blocks:
        for k, line in enumerate(block.lines):
            first = [block.title if k == 0 else ""] if grouped else []
            last = [_references(line)] if referred else []
            lines.append(_cells([*first, _plain(line.head), *map(_value, line.values), *last]))
    return "\n\n".join([f"**{table.caption}**", "\n".join(lines), *table.notes])


def _value(value: Value) -> str:
    text = _plain(value.text)
    if not text:
        return text
    return {"": text, "best": f"**{text}**", "second": f"<u>{text}</u>"}[value.mark]


def _references(line: Line) -> str:
    numbers = sorted({row.number for value in line.values for row in value.rows})
    return " ".join(f"[{number}](#row-{number})" for number in numbers)


def _rows(rows: Sequence[Row]) -> str:
    lines = [_cells(["row", "file", "date", "machine", "settings", "training"]), _cells(["---"] * 6)]
    for row in rows:
        state = row.epochs if row.finished else f"unfinished: {row.epochs}"
        date = str(row.content.get("date", ""))
        number = f'<a id="row-{row.number}"></a>{row.number}'
        lines.append(_cells([number, f"`{row.file}`", date, row.machine, row.config_hash, state]))
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _cells(values: Iterable[str]) -> str:
    return f"| {' | '.join(values)} |"
