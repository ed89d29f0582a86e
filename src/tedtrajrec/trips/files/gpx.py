"""GPX tracks as blocks of text columns, and trips as GPX.

The file is read by events in flat memory. A document type is refused, so that no entity can be declared and expanded.
Every track segment is a trip, named after its track; values below a point other than its time become extra columns
of the fix, values below a track extra columns of the trip. Waypoints and routes are not trips and are not read.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import polars as pl

from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.files import existing_file
from tedtrajrec.trips.files.checking import RejectedRows
from tedtrajrec.trips.files.columns import CANONICAL
from tedtrajrec.trips.files.extras import to_column, to_text
from tedtrajrec.trips.files.fixes import scatter
from tedtrajrec.trips.files.sources import GZIP, Block, FixSource
from tedtrajrec.trips.table import Trips

HEADER: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<gpx version="1.1" creator="tedtrajrec" xmlns="http://www.topografix.com/GPX/1/1" '
    'xmlns:tedtrajrec="urn:tedtrajrec:columns">\n'
)
FOOTER: Final = "</gpx>\n"

_READ_BYTES = 1 << 20
_BLOCK_POINTS = 1 << 17
_BASE = ("traj_id", "timestamp", "lon", "lat")
_NOT_XML = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"


class GpxFile(FixSource):
    """A GPX file that has been looked through once for its columns."""

    untyped = True

    def __init__(self, path: str | Path) -> None:
        self.path = existing_file(path, "a GPX file of trips")
        points = 0
        per_fix: dict[str, None] = {}
        per_trip: dict[str, None] = {}
        for events in self._events():
            points += events.points
            per_fix |= dict.fromkeys(events.per_fix)
            per_trip |= dict.fromkeys(events.per_trip)
        if points == 0:
            raise InputError(
                "there are no track points",
                file=self.path,
                remedy="Only tracks (trk, trkseg, trkpt) are trips; waypoints and routes are not.",
            )
        self._fix_columns = {name: _free(name, _BASE) for name in per_fix}
        taken = (*CANONICAL, *self._fix_columns.values())
        self._trip_columns = {name: _free(name, taken) for name in per_trip}
        self.per_trip = tuple(self._trip_columns.values())
        self.names = [*_BASE, *self._fix_columns.values(), *self.per_trip]

    def blocks(self, names: Sequence[str], rejects: RejectedRows | None = None) -> Iterator[Block]:  # noqa: ARG002
        """Yield the given columns as text; a row is a track point, in the order of the file."""
        first = 1
        for events in self._events():
            if events.points:
                frame = self._frame(events).select(names)
                yield Block(frame, np.arange(first, first + events.points))
                first += events.points

    def _frame(self, events: _Events) -> pl.DataFrame:
        points = events.points
        columns = {
            name: pl.Series(values[:points], dtype=pl.String) for name, values in zip(_BASE, events.base, strict=True)
        }
        for found, renamed in ((events.per_fix, self._fix_columns), (events.per_trip, self._trip_columns)):
            for key, name in renamed.items():
                values: list[str | None] = [None] * len(events.base[0])
                for row, value in found.get(key, ()):
                    values[row] = value
                columns[name] = pl.Series(values[:points], dtype=pl.String)
        return pl.DataFrame(columns)

    def _events(self) -> Iterator[_Events]:
        """Yield what is found, some points at a time."""
        parser = expat.ParserCreate()
        events = _Events(self.path)
        events.attach(parser)
        with self.path.open("rb") as file:
            gzipped = file.read(2) == GZIP
        try:
            with gzip.open(self.path) if gzipped else self.path.open("rb") as file:
                while chunk := file.read(_READ_BYTES):
                    parser.Parse(chunk, False)
                    if events.points >= _BLOCK_POINTS:
                        yield events
                        events.forget()
                parser.Parse(b"", True)
        except (expat.ExpatError, LookupError, ValueError) as error:  # the latter: an encoding nobody knows
            raise InputError(f"the XML is broken ({error})", file=self.path, remedy="Export the file again.") from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"the file is damaged or cut off ({error})", file=self.path) from error
        yield events


class _Events:
    """Collects points while the parser runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[str] = []  # local names of the elements around
        self._text: list[str] = []
        self._is_leaf = False
        self._column: str | None = None  # the name attribute of our own column element
        self._track = 0
        self._track_name = ""
        self._track_values: dict[str, str] = {}
        self._trip: str | None = None
        self._used: dict[str, int] = {}  # trips by track name
        self.base: list[list[str | None]] = [[], [], [], []]  # id, time, lon, lat of each point
        self.per_fix: dict[str, list[tuple[int, str]]] = {}  # point and value
        self.per_trip: dict[str, list[tuple[int, str]]] = {}

    @property
    def points(self) -> int:
        """Number of complete points; one more may be open."""
        return len(self.base[0]) - ("trkpt" in self._open)

    def forget(self) -> None:
        """Drop the complete points."""
        points = self.points
        self.base = [values[points:] for values in self.base]
        for found in (self.per_fix, self.per_trip):
            for key, values in found.items():
                found[key] = [(row - points, value) for row, value in values if row >= points]

    def attach(self, parser: expat.XMLParserType) -> None:
        """Let a parser call us."""
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append

    def _doctype(self, *_: object) -> None:
        raise InputError("a document type declaration is not allowed in GPX", file=self.path)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if not self._open and name != "gpx":
            raise InputError(f"this is XML, but not GPX (it starts with <{name}>)", file=self.path)
        self._open.append(name)
        self._text.clear()
        self._is_leaf = True
        self._column = attributes.get("name") if name == "column" else None
        if name == "trk":
            self._track += 1
            self._track_name, self._track_values = f"track {self._track}", {}
        elif name == "trkseg":
            self._trip = None
        elif name == "trkpt":
            self._start_point(attributes)

    def _start_point(self, attributes: dict[str, str]) -> None:
        if self._trip is None:
            count = self._used[self._track_name] = self._used.get(self._track_name, 0) + 1
            self._trip = self._track_name if count == 1 else f"{self._track_name}/{count}"
        row = len(self.base[0])
        values = (self._trip, None, attributes.get("lon"), attributes.get("lat"))
        for column, value in zip(self.base, values, strict=True):
            column.append(value)
        for key, text in self._track_values.items():
            self.per_trip.setdefault(key, []).append((row, text))

    def _end(self, _tag: str) -> None:
        name = self._open.pop()
        if not self._is_leaf or name in ("trkpt", "trkseg", "trk", "extensions"):
            self._is_leaf = False
            return
        self._is_leaf = False
        text = "".join(self._text)
        key = name if self._column is None else self._column
        if "trkpt" in self._open:
            if name == "time" and self._open[-1] == "trkpt":
                self.base[1][-1] = text
            else:
                self.per_fix.setdefault(key, []).append((len(self.base[0]) - 1, text))
        elif "trk" in self._open and "trkseg" not in self._open:
            if name == "name" and self._open[-1] == "trk":
                self._track_name = text.strip() or self._track_name
            else:
                self._track_values[key] = text


def to_gpx(trips: Trips) -> str:
    """Return the tracks of trips as GPX text, one track with one segment per trip; columns go into extensions."""
    fixes = scatter(trips.replace(trip_extra={}))
    extras = [name for name in fixes.columns if name not in _BASE]
    points = fixes.select(
        pl.format(
            '<trkpt lat="{}" lon="{}"><time>{}</time>{}</trkpt>\n',
            pl.Series(_decimals(fixes["lat"])),
            pl.Series(_decimals(fixes["lon"])),
            pl.from_epoch("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            pl.Series(_extensions([fixes[name] for name in extras], len(fixes))),
        )
    ).to_series()
    heads = _extensions([to_column(name, values) for name, values in trips.trip_extra.items()], len(trips)).to_list()
    names = _escaped(to_column("traj_id", trips.traj_id)).to_list()
    tracks = []
    for i, (start, end) in enumerate(zip(trips.offsets[:-1], trips.offsets[1:], strict=True)):
        if end > start:
            body = "".join(points[int(start) : int(end)].to_list())
            tracks.append(f"<trk><name>{names[i]}</name>{heads[i]}<trkseg>\n{body}</trkseg></trk>\n")
    return "".join(tracks)


def _extensions(columns: Sequence[pl.Series], rows: int) -> pl.Series:
    """Return the extensions element of each row, empty where all columns are."""
    empty = pl.Series([""]).new_from_index(0, rows)
    inside = empty
    for column in columns:
        opening = f"<tedtrajrec:column name={quoteattr(column.name)}>"
        value = opening + _escaped(to_text(column)) + "</tedtrajrec:column>"
        inside = inside + value.fill_null("")
    return (("<extensions>" + inside) + "</extensions>").zip_with(inside != "", empty)


def _escaped(text: pl.Series) -> pl.Series:
    if text.str.contains(_NOT_XML).any():
        raise OutputError(f"Column '{text.name}' holds characters that XML cannot; write CSV or Parquet instead.")
    if text.str.contains(r"[&<>\r]").any():
        for sign in "&<>":
            text = text.str.replace_all(sign, escape(sign), literal=True)
        text = text.str.replace_all("\r", "&#13;", literal=True)
    return text


def _decimals(numbers: pl.Series) -> pl.Series:
    """Return numbers as exact text without exponents, which GPX does not allow."""
    text = numbers.cast(pl.String)
    exponents = text.str.contains("e", literal=True).to_numpy()
    if not exponents.any():
        return text
    written = text.to_list()
    for i in np.flatnonzero(exponents):
        written[i] = np.format_float_positional(numbers[int(i)], trim="0")
    return pl.Series(written)


def _free(name: str, taken: Sequence[str]) -> str:
    return f"{name}_in_file" if name in taken else name
