"""Finished parts of the work, kept in a folder beside the output until the dataset is whole.

Each part is one chunk of the input and one file, written beside its place and renamed into it, so that work which is
interrupted at any moment goes on from the parts that are there. What the parts were made from is written down; parts
of another input or of other settings are thrown away.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import OutputError
from tedtrajrec.files import replacing
from tedtrajrec.trips.cleaning.rejects import CleanSummary
from tedtrajrec.trips.table import Trips, as_text, concat_trips

FORMAT = 1
_OURS = re.compile(r"\d{6}\.npz|(recipe|all_read)\.json|rejects\.csv|dataset|\.[0-9a-f]{8}-.*")

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


class Work:
    """The folder of parts.

    Parameters
    ----------
    folder
        Its place; made where it is missing.
    recipe
        Plain values that say what the parts are made from and how.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        self.folder = folder
        self.dataset = folder / "dataset"
        self.rejects = folder / "rejects.csv"
        recipe = json.loads(json.dumps({"format": FORMAT, **recipe}))
        found = folder.exists()
        self.is_new = not found or _read(folder / "recipe.json") != recipe
        self.was_other = found and self.is_new
        if self.was_other:
            self.remove()
        if self.is_new:
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from error
            _write(folder / "recipe.json", recipe)

    def remove(self) -> None:
        """Remove the folder."""
        remove_work(self.folder)

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

    @property
    def all_read(self) -> Mapping[str, Any] | None:
        """What was noted when the whole input had been read, or None."""
        note: Mapping[str, Any] | None = _read(self.folder / "all_read.json")
        return note

    def note_all_read(self, note: Mapping[str, Any]) -> None:
        """Note that the whole input has been read; no further part will come."""
        _write(self.folder / "all_read.json", note)

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


def remove_work(folder: Path) -> None:
    """Remove a folder of parts, if it is one and holds nothing else."""
    if not folder.is_dir():
        return
    if not all(_OURS.fullmatch(entry.name) for entry in folder.iterdir()):
        raise OutputError(f"{folder} holds files that are not ours; prepare keeps its parts there, so move them away.")
    # The recipe goes first: what is left without it is never gone on from.
    (folder / "recipe.json").unlink(missing_ok=True)
    shutil.rmtree(folder)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    with replacing(path) as beside:
        beside.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def _read(path: Path) -> Any:  # noqa: ANN401  (JSON)
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
