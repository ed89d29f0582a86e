"""CSV and its kin (semicolon, tab, bar; gzip) as blocks of text columns, in flat memory.

Everything is read as text first, so that the row of a bad value can be named; casting it afterwards costs a tenth of
the reading. Unquoted empty fields are nulls, quoted ones empty text.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file
from tedtrajrec.trips.files.checking import RejectedRows
from tedtrajrec.trips.files.sources import GZIP, Block, FixSource, frame_of
from tedtrajrec.trips.files.times import SET_ASIDE

DELIMITERS = ",;\t|"
_HEAD_BYTES = 1 << 20  # room for the header
_BLOCK_BYTES = 1 << 21  # several are read ahead; also the longest row that can be read


class DelimitedFile(FixSource):
    """A CSV file whose header has been read."""

    untyped = True

    def __init__(self, path: str | Path) -> None:
        self.path = existing_file(path, "a CSV file of trips")
        with self.path.open("rb") as file:
            self.gzipped = file.read(2) == GZIP
        self.names, self.delimiter = self._header()

    def blocks(self, names: Sequence[str], rejects: RejectedRows | None = None) -> Iterator[Block]:
        """Yield the given columns as text; rows with too many or too few fields raise or are set aside."""
        skipped: list[int] = []  # data rows set aside so far, for the numbers of the others
        delivered = 0

        def uneven(row: pa.csv.InvalidRow) -> str:
            if rejects is None:
                return "error"
            skipped.append(row.number - 1)  # the header is row 1 there
            rejects.add(np.array([row.number - 1]), "", [row.text], _uneven_reason(row))
            return "skip"

        try:
            # Only one thread knows row numbers; without rejects the number is looked up after the fault.
            with self._open(names, uneven, threads=rejects is None) as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield Block(frame_of(batch), _numbers(delivered, batch.num_rows, skipped))
                        delivered += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._explain(error, names) from error

    def _open(
        self, names: Sequence[str], uneven: Callable[[pa.csv.InvalidRow], str], *, threads: bool
    ) -> pa.csv.CSVStreamingReader:
        stream = pa.input_stream(str(self.path), compression="gzip" if self.gzipped else None)
        return pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=threads),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=uneven
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in self.names},
                include_columns=list(names),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _header(self) -> tuple[list[str], str]:
        try:
            with gzip.open(self.path) if self.gzipped else self.path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise self._explain(error, ()) from error
        try:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=len(head) < _HEAD_BYTES)
        except UnicodeDecodeError as error:
            raise _not_utf8(self.path) from error
        if "\0" in text:
            raise InputError(
                "this is not a text file", file=self.path, remedy="Trips are read from CSV, Parquet or GPX."
            )
        header: list[str] = []
        chosen = DELIMITERS[0]
        for delimiter in DELIMITERS:
            rows = csv.reader(io.StringIO(text), delimiter=delimiter)
            try:
                names = next((row for row in rows if row), [])
            except csv.Error:  # not with this delimiter
                continue
            if len(names) > len(header):
                header, chosen = names, delimiter
        if not header:
            raise InputError("the file is empty", file=self.path)
        return header, chosen

    def _explain(self, error: Exception, names: Sequence[str]) -> InputError:
        message = str(error)
        if isinstance(error, UnicodeDecodeError) or "UTF8" in message:
            return _not_utf8(self.path)
        if "straddling" in message:
            return InputError(
                f"a row is longer than {_BLOCK_BYTES >> 20} MiB",
                file=self.path,
                remedy="Look for a quote that is opened and never closed.",
            )
        if "Empty CSV" in message:
            return InputError("the file has a header but no rows", file=self.path)
        if "CSV parse error" in message and "Expected" in message:  # one thread also says which row of the file
            return self._first_uneven(names)
        if isinstance(error, OSError | EOFError | zlib.error) and self.gzipped:
            return InputError(
                f"the gzip data is damaged or cut off ({message})", file=self.path, remedy="Copy or download it again."
            )
        return InputError(f"the file cannot be read ({message})", file=self.path)

    def _first_uneven(self, names: Sequence[str]) -> InputError:
        """Look for the first row that cannot be divided into columns, to name it."""
        found: list[pa.csv.InvalidRow] = []

        def stop(row: pa.csv.InvalidRow) -> str:
            found.append(row)
            return "error"

        with contextlib.suppress(pa.ArrowException), self._open(names, stop, threads=False) as reader:
            for _ in reader:
                pass
        return InputError(
            f"this row {_uneven_reason(found[0])}",
            file=self.path,
            row=found[0].number - 1,
            remedy=f"Quote values that contain the delimiter{SET_ASIDE}.",
        )


def _uneven_reason(row: pa.csv.InvalidRow) -> str:
    return f"has {row.actual_columns} fields where the header has {row.expected_columns}"


def _numbers(delivered: int, count: int, skipped: Sequence[int]) -> NDArray[np.int64]:
    """Return the data row numbers of the next ``count`` rows, given those that were left out."""
    numbers = np.arange(delivered + 1, delivered + count + 1, dtype=np.int64)
    gaps = np.asarray(skipped, np.int64) - np.arange(len(skipped))
    return numbers + np.searchsorted(gaps, numbers, side="right")


def _not_utf8(path: Path) -> InputError:
    return InputError("the text is not UTF-8", file=path, remedy="Convert it, for example with iconv -t UTF-8.")
