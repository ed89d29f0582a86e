"""Finished parts of the work, kept in a folder beside the output until the dataset is whole; one file for each."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.files import replacing
from tedtrajrec.trips.cleaning.rejects import CleanSummary
from tedtrajrec.trips.table import Trips, as_text, concat_trips
from tedtrajrec.work import WorkFolder

FORMAT = 1
OURS = r"\d{6}\.npz|rejects\.csv|dataset"

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Account:
    """What became of the trips of a part; accounts can be added."""

    cleaned: CleanSummary = field(default_factory=CleanSummary)
    dropped: Mapping[str, int] = field(default_factory=dict)  # trips by reason, after cleaning

    def __add__(self, other: Account) -> Account:
        return Account(self.cleaned + other.cleaned, dict(Counter(self.dropped) + Counter(other.dropped)))


@dataclass(frozen=True, eq=False)
class Part:
    """The T trips that are left of one chunk of the input, on their step grids."""

    steps: Trips  # with segment and ratio
    split: NDArray[np.int8]  # [T] as the file says it, NO_SPLIT where it does not
    fixes: NDArray[np.uint64]  # [F] hashes of the fixes they were made from
    fix_offsets: NDArray[np.int64]  # [T+1]
    account: Account
    rejects: str  # rows of the CSV of what was dropped


class Work(WorkFolder):
    """The folder of parts.

    Parameters
    ----------
    folder
        Its place; made where it is missing.
    recipe
        Plain values that say what the parts are made from and how.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        super().__init__(folder, {"format": FORMAT, **recipe}, ours=OURS)
        self.dataset = folder / "dataset"
        self.rejects = folder / "rejects.csv"

    # ------------------------------------------------------------------ reading the input

    def part_file(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"{number:06d}.npz"

    def save(self, number: int, part: Part) -> None:
        """Keep a part."""
        steps = part.steps
        texts = {"account": json.dumps(dataclasses.asdict(part.account)), "rejects": part.rejects}
        with replacing(self.part_file(number)) as beside, beside.open("wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                traj_id=np.array(steps.traj_id.tolist(), str),
                offsets=steps.offsets,
                time=steps.time,
                lon=steps.lon,
                lat=steps.lat,
                segment=np.asarray(steps.segment),
                ratio=np.asarray(steps.ratio),
                split=part.split,
                fixes=part.fixes,
                fix_offsets=part.fix_offsets,
                **{name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()},
            )

    # ------------------------------------------------------------------ reading the parts

    def files(self) -> list[Path]:
        """Return the files of all parts, in order."""
        return sorted(self.folder.glob("[0-9]*.npz"))

    def columns(self, *names: str) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield some columns of each part."""
        for path in self.files():
            with np.load(path, allow_pickle=False) as file:
                yield tuple(file[name] for name in names)

    def texts(self, name: str) -> Iterator[str]:
        """Yield a text of each part."""
        for (column,) in self.columns(name):
            yield column.tobytes().decode()

    def account(self) -> Account:
        """Return the accounts of all parts together."""
        total = Account()
        for text in self.texts("account"):
            values = json.loads(text)
            total += Account(CleanSummary(**values["cleaned"]), values["dropped"])
        return total

    def shards(self, chosen: Mask, size: int) -> Iterator[Trips]:
        """Yield the chosen of all trips (in the order of the parts) in shards of ``size`` trips."""
        held: list[Trips] = []
        count = first = 0
        names = ("traj_id", "offsets", "time", "lon", "lat", "segment", "ratio")
        for traj_id, offsets, time, lon, lat, segment, ratio in self.columns(*names):
            mine = chosen[first : first + len(traj_id)]
            first += len(traj_id)
            if mine.any():
                held.append(Trips(as_text(traj_id), offsets, time, lon, lat, segment, ratio).select(mine))
                count += len(held[-1])
            while count >= size:
                joined = concat_trips(held)
                yield joined.select(np.arange(size))
                held, count = [joined.select(np.arange(size, count))], count - size
        if count:
            yield concat_trips(held)
