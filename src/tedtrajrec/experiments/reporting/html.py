"""A report as one file of HTML that needs nothing beside it and no scripts."""

from __future__ import annotations

import base64
import re
from html import escape
from pathlib import Path

from tedtrajrec.experiments.reporting.page import Commands, Part, Picture, Report, Section, Table, Value
from tedtrajrec.experiments.reporting.rows import Row

_STYLE = """
:root { color-scheme: light; --ink: #33312e; --paper: #fbfaf7; --line: #cfcac0; --accent: #1f5a8c; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 .5rem; } h2 { margin: 2.5rem 0 .5rem; border-bottom: 2px solid var(--line); }
a { color: var(--accent); } p, figcaption, caption { max-width: 62rem; }
nav ol { columns: 2; padding-left: 1.4rem; }
.table { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; font-weight: 600; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 11rem; }
.rows th:first-child { min-width: 0; }
thead th, thead td { border-bottom: 2px solid var(--ink); }
thead th { white-space: normal; vertical-align: bottom; }
tbody { border-bottom: 1px solid var(--line); }
tbody th { font-weight: 400; } tbody th[scope=rowgroup] { font-weight: 600; padding-top: .5rem; }
td a { color: inherit; text-decoration: none; } td a:hover, td a:focus { text-decoration: underline dotted; }
td .second { text-decoration: underline; }
tr.summary th, tr.summary td { font-style: italic; }
.notes { font-size: .88rem; margin: .3rem 0; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; height: auto; border: 1px solid var(--line); }
pre { overflow-x: auto; background: #f0ede5; padding: .8rem 1rem; font-size: .88rem; }
.rows td, .rows th { font-size: .82rem; white-space: normal; overflow-wrap: anywhere; text-align: left; }
:target { background: #fff2b3; }
@media print { body { max-width: none; } a { color: inherit; } }
"""


def html_text(report: Report, folder: Path) -> str:
    """Return a report as HTML; its pictures are read from the folder and become part of the text."""
    sections = "\n".join(_section(section, folder) for section in report.sections)
    links = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in report.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(report.title)}</h1><p>{escape(report.intro)}</p></header>\n"
        f'<nav aria-label="Contents"><ol>{links}<li><a href="#rows">Rows</a></li></ol></nav>\n<main>\n'
        f"{sections}\n{_rows(report.rows)}\n</main>\n</body>\n</html>\n"
    )


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _section(section: Section, folder: Path) -> str:
    parts = "\n".join(_part(part, folder) for part in section.parts)
    return f'<section id="{_anchor(section.title)}">\n<h2>{escape(section.title)}</h2>\n{parts}\n</section>'


def _part(part: Part, folder: Path) -> str:
    match part:
        case Table():
            return _table(part)
        case Picture():
            return _picture(part, folder)
        case Commands():
            return f"<pre><code>{escape(part.text)}</code></pre>"
        case _:
            return f"<p>{escape(part)}</p>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in table.columns)
    bodies = []
    for block in table.blocks:
        lines = []
        if block.title:
            lines.append(f'<tr><th scope="rowgroup" colspan="{len(table.columns)}">{escape(block.title)}</th></tr>')
        for line in block.lines:
            kind = ' class="summary"' if line.summary else ""
            cells = "".join(f"<td>{_value(value)}</td>" for value in line.values)
            lines.append(f'<tr{kind}><th scope="row">{escape(line.head)}</th>{cells}</tr>')
        bodies.append("<tbody>" + "\n".join(lines) + "</tbody>")
    notes = "".join(f'<p class="notes">{escape(note)}</p>' for note in table.notes)
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="{escape(table.caption)}">'
        f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>\n"
        + "\n".join(bodies)
        + f"</table>{notes}</div>"
    )


def _value(value: Value) -> str:
    text = escape(value.text)
    if value.mark == "best":
        text = f"<strong>{text}</strong>"
    elif value.mark == "second":
        text = f'<span class="second">{text}</span>'
    if not text or not value.rows:
        return text
    said = "; ".join([*([value.hint] if value.hint else []), *(str(row) for row in value.rows)])
    return f'<a href="#row-{value.rows[0].number}" title="{escape(said)}">{text}</a>'


def _picture(picture: Picture, folder: Path) -> str:
    shown = picture.svg or picture.png
    kind = "image/svg+xml" if shown.suffix == ".svg" else "image/png"
    data = base64.b64encode((folder / shown).read_bytes()).decode("ascii")
    files = " · ".join(f'<a href="{path.as_posix()}">{path.suffix[1:].upper()}</a>' for path in _files(picture))
    return (
        f'<figure><img src="data:{kind};base64,{data}" alt="{escape(picture.alt)}">'
        f"<figcaption>{escape(picture.caption)} ({files})</figcaption></figure>"
    )


def _files(picture: Picture) -> list[Path]:
    return [path for path in (picture.png, picture.svg) if path is not None]


def _rows(rows: tuple[Row, ...]) -> str:
    lines = []
    for row in rows:
        settings = " ".join(row.cell.settings) if row.cell is not None else str(row.content.get("kind", ""))
        cells = (row.file, str(row.content.get("date", "")), row.machine, row.config_hash, row.epochs, settings)
        state = "" if row.finished else " (unfinished)"
        lines.append(
            f'<tr id="row-{row.number}"><th scope="row">{row.number}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in (cells[0] + state, *cells[1:]))
            + "</tr>"
        )
    heads = ("row", "file", "date", "machine", "settings (hash)", "training", "settings")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        '<section id="rows">\n<h2>Rows</h2>\n<p>Every number above leads to the row that it was computed from, or to '
        "the first of several; pointing at it names all of them.</p>\n"
        '<div class="table rows" tabindex="0" role="group" aria-label="Rows"><table>'
        f"<caption>Rows by number</caption><thead><tr>{head}</tr></thead><tbody>\n"
        + "\n".join(lines)
        + "</tbody></table></div>\n</section>"
    )
