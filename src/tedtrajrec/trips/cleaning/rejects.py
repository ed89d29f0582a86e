"""What cleaning dropped and why: counts that add up, and a list of every fix and trip that is gone."""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.files import replacing

COLUMNS = ("traj_id", "position", "timestamp", "lon", "lat", "reason", "row", "column", "value")
"""Header of a rejects file; ``timestamp`` is in epoch seconds. The last three are for rows that could not be read."""

WHOLE_TRIP = -1
"""Position that stands for a trip, not for one of its fixes."""

NO_TIME = int(np.iinfo(np.int64).min)
"""Time of a trip that came without fixes."""


class Reason(IntEnum):
    """Why a fix or a trip was dropped, or a trip cut; files and summaries use :attr:`text`."""

    NO_POSITION = 1  # fix: lon or lat missing or not on Earth
    OUT_OF_ORDER = 2  # fix: older than one before it
    DUPLICATE = 3  # fix: same time and place as one before it
    SAME_TIME = 4  # fix: same time as one before it, but another place
    INACTIVE = 5  # fix, cut: ignition off, not occupied
    ACTIVITY_CHANGE = 6  # cut: from one active value to another
    GAP = 7  # cut: no fix for too long
    JUMP = 8  # fix, cut: cannot be reached at the highest speed
    STANDING = 9  # fix, cut: between the start and the end of a stop
    OUTSIDE = 10  # fix, cut: too far from the network
    BELOW_MIN_FIXES = 11  # trip and its fixes
    BELOW_MIN_DURATION = 12
    ABOVE_MAX_DURATION = 13
    BELOW_MIN_LENGTH = 14
    EMPTY = 15  # trip: came without fixes
    NOTHING_LEFT = 16  # trip: all its fixes were dropped one by one

    @property
    def text(self) -> str:
        """Return the name used in files, such as ``same_time``."""
        return self.name.lower()


@dataclass(frozen=True)
class CleanSummary:
    """Counts of one cleaning run; those of chunks can be added.

    Always ``fixes_in`` = ``fixes_out`` + all ``fixes_dropped``, and ``trips_in`` + all ``cuts`` = ``trips_out`` + all
    ``trips_dropped``, because a cut makes two trips of one.
    """

    rows_unreadable: int = 0  # rows of the input that never became fixes
    trips_in: int = 0
    fixes_in: int = 0
    trips_out: int = 0
    fixes_out: int = 0
    fixes_reordered: int = 0  # came after a newer fix of the trip and were put in order
    fixes_dropped: Mapping[str, int] = field(default_factory=dict)  # by reason, those that occur
    trips_dropped: Mapping[str, int] = field(default_factory=dict)
    cuts: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: CleanSummary) -> CleanSummary:
        return CleanSummary(
            rows_unreadable=self.rows_unreadable + other.rows_unreadable,
            trips_in=self.trips_in + other.trips_in,
            fixes_in=self.fixes_in + other.fixes_in,
            trips_out=self.trips_out + other.trips_out,
            fixes_out=self.fixes_out + other.fixes_out,
            fixes_reordered=self.fixes_reordered + other.fixes_reordered,
            fixes_dropped=dict(Counter(self.fixes_dropped) + Counter(other.fixes_dropped)),
            trips_dropped=dict(Counter(self.trips_dropped) + Counter(other.trips_dropped)),
            cuts=dict(Counter(self.cuts) + Counter(other.cuts)),
        )

    def __str__(self) -> str:
        lines = [
            f"{'trips':<28}{self.trips_in:>12,} -> {self.trips_out:,}",
            f"{'fixes':<28}{self.fixes_in:>12,} -> {self.fixes_out:,}",
        ]
        if self.rows_unreadable:
            lines.insert(0, f"{'rows that cannot be read':<28}{self.rows_unreadable:>12,}")
        if self.fixes_reordered:
            lines.append(f"{'fixes put in order':<28}{self.fixes_reordered:>12,}")
        for title, counts in (
            ("fixes dropped", self.fixes_dropped),
            ("trips cut", self.cuts),
            ("trips dropped", self.trips_dropped),
        ):
            if counts:
                lines.append(f"{title:<28}{sum(counts.values()):>12,}")
                lines += [f"  {reason.replace('_', ' '):<26}{count:>12,}" for reason, count in counts.items()]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Rejects:
    """Every dropped fix and every dropped trip, in the order of the input; a trip comes before its fixes.

    The fixes of a dropped trip are listed too, so rows with a position are exactly the fixes that are gone. A trip that
    was cut can have several rows for trips: one for each piece that was dropped, told apart by their times.
    """

    traj_id: NDArray[Any]  # [R] text, as in the input
    position: NDArray[np.int64]  # [R] number of the fix in its input trip from 0, or WHOLE_TRIP
    time: NDArray[np.int64]  # [R] epoch seconds; of a trip, that of its first fix
    lon: NDArray[np.float64]  # [R]
    lat: NDArray[np.float64]  # [R]
    reason: NDArray[np.uint8]  # [R] see Reason

    def __len__(self) -> int:
        return len(self.position)

    def __repr__(self) -> str:
        trips = int((self.position == WHOLE_TRIP).sum())
        return f"Rejects({len(self) - trips} fixes, {trips} trips)"


def write_rejects(rejects: Rejects, path: str | Path) -> None:
    """Write rejects as CSV; the file is whole or absent."""
    with RejectsFile(path) as file:
        file.add(rejects)


class RejectsFile(contextlib.AbstractContextManager["RejectsFile"]):
    """A CSV of rejects, filled chunk by chunk; it appears when the block ends well."""

    def __init__(self, path: str | Path) -> None:
        with contextlib.ExitStack() as stack:
            beside = stack.enter_context(replacing(path))
            file = stack.enter_context(beside.open("w", encoding="utf-8", newline=""))
            self._stack = stack.pop_all()
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(COLUMNS)

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401, PYI036  (handed on as they come)
        self._stack.__exit__(*error)

    def add(self, rejects: Rejects) -> None:
        """Add the fixes and trips that one chunk lost."""
        names = np.array(["", *(reason.text for reason in Reason)])
        self._rows.writerows(
            (*row, "", "", "")
            for row in zip(
                rejects.traj_id.tolist(),
                rejects.position.tolist(),
                _cells(rejects.time, rejects.time != NO_TIME),
                _cells(rejects.lon, np.isfinite(rejects.lon)),
                _cells(rejects.lat, np.isfinite(rejects.lat)),
                names[rejects.reason].tolist(),
                strict=True,
            )
        )

    def add_rows(self, rows: Iterable[tuple[int, str, str, str]]) -> None:
        """Add rows of the input that could not be read: number, column, value and reason of each."""
        self._rows.writerows(("", "", "", "", "", reason, row, column, value) for row, column, value, reason in rows)


def _cells(values: NDArray[Any], known: NDArray[np.bool_]) -> list[Any]:
    cells = values.astype(object)
    cells[~known] = ""
    return list(cells)


def count_reasons(codes: NDArray[np.uint8]) -> dict[str, int]:
    """Return how often each reason occurs among codes; zeros do not count."""
    counts = np.bincount(codes, minlength=len(Reason) + 1)
    return {reason.text: int(counts[reason]) for reason in Reason if counts[reason]}
