"""A report as plain values, which are then written as HTML or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tedtrajrec.experiments.reporting.rows import Row

Mark = Literal["", "best", "second"]


@dataclass(frozen=True)
class Value:
    """One value of a table."""

    text: str = ""
    mark: Mark = ""
    rows: tuple[Row, ...] = ()  # what it was computed from
    hint: str = ""  # said beside the rows


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    head: str
    values: tuple[Value, ...]
    summary: bool = False  # computed from the lines above


@dataclass(frozen=True)
class Block:
    """Lines of a table that belong together."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column holds the heads of the lines."""

    caption: str
    columns: tuple[str, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A figure, as files of the same picture in the folder of the report."""

    caption: str
    alt: str
    png: Path
    svg: Path | None = None


@dataclass(frozen=True)
class Commands:
    """Commands to be typed."""

    text: str


Part = str | Table | Picture | Commands  # a text is a paragraph


@dataclass(frozen=True)
class Section:
    """A chapter of the report."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Report:
    """All of it."""

    title: str
    intro: str
    sections: tuple[Section, ...]
    rows: tuple[Row, ...]  # to which values refer by number
