"""Finished parts of a recovery, kept in ``OUTPUT.parts`` until the output is whole.

A part is one chunk of the input: the recovered steps and a row for each trip as Parquet, and last, as the sign that
the part is complete, a small JSON file with what went in and what was rejected. Files that are put together from the
parts are made here too and then moved to their places, so that nothing is left of a run that is killed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tedtrajrec.files import replacing
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tedtrajrec.work import WorkFolder, read_json, write_json

FORMAT = 2
_OURS = r"\d{6}\.(steps\.parquet|trips\.parquet|json)|(recovered|summary)\..*|rejects\.csv"


@dataclass(frozen=True)
class Account:
    """What went into one part and what was not used of it."""

    trips_in: int
    fixes_in: int
    fixes_rejected: int
    rejects: list[tuple[str, int | None, str]]  # trip, time of the fix (None: the whole trip) and reason


class RecoveryParts(WorkFolder):
    """The folder of parts; see :class:`WorkFolder`."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        super().__init__(folder, {"format": FORMAT, **recipe}, ours=_OURS)

    def __len__(self) -> int:
        return len(self._numbers())

    def has(self, number: int) -> bool:
        """Tell whether a part is complete."""
        return self._file(number, "json").exists()

    def save(self, number: int, fixes: Trips, recovered: RecoveredTrips, trips: pl.DataFrame, rejected: int) -> None:
        """Keep a part.

        Parameters
        ----------
        number
            Which chunk of the input it is.
        fixes
            The chunk.
        recovered, trips
            What was recovered, and a row for each trip.
        rejected
            How many of the fixes were not used.
        """
        if len(recovered):
            write_trips(recovered.to_trips(), self._file(number, "steps.parquet"))
        with replacing(self._file(number, "trips.parquet")) as beside:
            trips.write_parquet(beside)
        account = {
            "trips_in": len(fixes),
            "fixes_in": fixes.n_fixes,
            "fixes_rejected": rejected,
            "rejects": _listed(recovered.rejects),
        }
        write_json(self._file(number, "json"), account)

    def steps(self) -> Iterator[Trips]:
        """Yield the recovered trips of each part that has any."""
        for number in self._numbers():
            file = self._file(number, "steps.parquet")
            if file.exists():
                yield RecoveredTrips.from_trips(read_trips(file)).to_trips()

    def trips(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of the trips of each part."""
        for number in self._numbers():
            yield pl.read_parquet(self._file(number, "trips.parquet"))

    def accounts(self) -> Iterator[Account]:
        """Yield the account of each part."""
        for number in self._numbers():
            values = read_json(self._file(number, "json"))
            rejects = [(name, time, reason) for name, time, reason in values.pop("rejects")]
            yield Account(rejects=rejects, **values)

    @contextlib.contextmanager
    def making(self, place: Path, what: Literal["recovered", "summary", "rejects"]) -> Iterator[Path]:
        """Yield where to make a file that is moved to its place when it is done; its name has the same endings."""
        made = self.folder / f"{what}{''.join(place.suffixes)}" if what != "rejects" else self.folder / "rejects.csv"
        yield made
        place = place.resolve() if place.is_symlink() else place
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            made.replace(place)
        except OSError:  # on another disk, or not to be written at all, which replacing says
            with replacing(place) as beside:
                shutil.copyfile(made, beside)

    def _file(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06d}.{suffix}"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.json"))


def _listed(rejects: Rejects) -> list[tuple[str, int | None, str]]:
    times = [None if time == NO_TIME else time for time in rejects.time.tolist()]
    return list(zip(rejects.traj_id.tolist(), times, rejects.reason.tolist(), strict=True))
