"""Columns of the input that say more than time and place: ids of the edges driven, and the split of each trip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.data.preparing.splitting import SPLIT_WORDS, split_by_words
from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.files.folders import trip_files
from tedtrajrec.trips.readers import open_source
from tedtrajrec.trips.table import Trips


class EdgeIds:
    """Finds the segments of a network by the ids of its edge table."""

    def __init__(self, network: RoadNetwork) -> None:
        self._segment: dict[str, int] = {}
        self._repeated: set[str] = set()
        for segment, key in enumerate(network.source_id.tolist()):
            if self._segment.setdefault(str(key), segment) != segment:
                self._repeated.add(str(key))
        # Rows of an edge table that repeat another one are not segments of their own.
        aliases: Mapping[str, Any] = network.meta.get("repeated_ids", {})
        for alias, key in aliases.items():
            if str(key) in self._segment:
                self._segment.setdefault(alias, self._segment[str(key)])

    def with_segments(self, trips: Trips, column: str, file: str | Path) -> Trips:
        """Return the trips with the segments that a column of edge ids names; empty ones are unknown."""
        values = _per_fix(trips, column)
        missing = _missing(values)
        distinct, place = np.unique(np.ma.getdata(values)[~missing], return_inverse=True)
        texts = [_key(value) for value in distinct.tolist()]
        for text in texts:
            if text not in self._segment or text in self._repeated:
                problem = "belongs to several segments" if text in self._repeated else "is not an edge of the network"
                raise InputError(
                    f"{text} {problem}",
                    file=file,
                    row=find_row(file, column, text),
                    field=column,
                    remedy="Use the network that they were matched to, or match them again with truth.source=match.",
                )
        segment = np.full(trips.n_fixes, -1, np.int32)
        segment[~missing] = np.array([self._segment[text] for text in texts], np.int32)[place.ravel()]
        return trips.replace(segment=segment, extra={k: v for k, v in trips.extra.items() if k != column})


def check_segments(trips: Trips, network: RoadNetwork, column: str, file: str | Path) -> None:
    """Refuse segments that the network does not have."""
    if trips.segment is not None and trips.n_fixes and trips.segment.max() >= network.n_segments:
        wrong = str(trips.segment.max())
        raise InputError(
            f"{wrong} is not a segment of the network, which has {network.n_segments}",
            file=file,
            row=find_row(file, column, wrong),
            field=column,
            remedy="Use the network that the trips were made with, or match them again with truth.source=match.",
        )


def splits_of(trips: Trips, column: str, file: str | Path) -> NDArray[np.int8]:
    """Return the split of each trip as a column says it; one value for each trip."""
    values = trips.trip_extra.get(column)
    if values is None:
        per_fix = _per_fix(trips, column)
        values = per_fix[trips.offsets[:-1]]
        words = _words(per_fix)
        first = np.repeat(_words(values), trips.lengths)
        if (words != first).any():
            trip = trips.trip_of_fix[np.argmax(words != first)]
            raise InputError(f"trip {trips.traj_id[trip]} has more than one value", file=file, field=column)
    codes, wrong = split_by_words(_words(values).tolist())
    if wrong is not None:
        raise InputError(
            f"'{wrong}' is no split",
            file=file,
            row=find_row(file, column, wrong),
            field=column,
            remedy=f"Write one of {', '.join(SPLIT_WORDS)}, or leave it empty to leave the trip out.",
        )
    return codes


def find_row(file: str | Path, column: str, text: str) -> int | None:
    """Return the first data row of a file, or of a part in a folder, that has the given text in a column."""
    for part in trip_files(file):
        for block in open_source(part).blocks([column]):
            found = block.frame[column].cast(pl.String).str.strip_chars() == text
            if found.any():
                return int(block.rows[int(found.arg_max() or 0)])
    return None


def _per_fix(trips: Trips, column: str) -> NDArray[Any]:
    if column in trips.trip_extra:
        return np.repeat(trips.trip_extra[column], trips.lengths)
    return trips.extra[column]


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    missing = np.ma.getmaskarray(values).copy()
    data = np.ma.getdata(values)
    if data.dtype.kind == "f":
        missing |= np.isnan(data)
    elif data.dtype.kind in "OTU":
        missing |= data == None  # noqa: E711  (element by element)
        missing[~missing] = data[~missing] == ""
    return missing


def _words(values: NDArray[Any]) -> NDArray[Any]:
    """Return texts, empty where missing."""
    words = np.ma.getdata(values).astype(object)
    words[_missing(values)] = ""
    return np.array(words.tolist(), str)


def _key(value: Any) -> str:  # noqa: ANN401  (a number or text)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
