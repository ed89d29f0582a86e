"""Prepared datasets: a folder that every method trains on and is evaluated on.

    dataset.json             what is in it and how it was made
    network.npz              the road network
    train/00000/segment.npy  one file for each array of each shard of each split, so that it can be memory-mapped

A trip is a row of steps, ``step_s`` seconds apart. Each step holds the observed fix, which is raw GPS on the step grid
(NaN where there was none), and the true position (segment -1 and ratio NaN where it is not known).
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.files import DAMAGED, existing_file, open_array, read_json, replacing_folder
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips, as_text

SCHEMA = 1
SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
SHARD_TRIPS = 16_384

_STEPS: dict[str, type[np.generic]] = {
    "lon": np.float64,  # [N] the fix, degrees, EPSG:4326; NaN where there is none
    "lat": np.float64,  # [N]
    "segment": np.int32,  # [N] the true position; -1 where unknown
    "ratio": np.float32,  # [N] NaN where unknown
}
_TRIPS: dict[str, type[np.generic]] = {
    "start": np.int64,  # [T] epoch seconds of the first step
    "offset": np.int64,  # [T+1] steps of trip i are offset[i]:offset[i + 1]
    "id_offset": np.int64,  # [T+1] its id is id_text[id_offset[i]:id_offset[i + 1]]
    "id_text": np.uint8,  # UTF-8
}
_TIMES = (-62_000_000_000, 253_000_000_000)  # epoch seconds: about the years 6 and 9987


@dataclass(frozen=True)
class SplitInfo:
    """The size of one split."""

    trips: int
    steps: int
    shards: int


@dataclass(frozen=True)
class DatasetInfo:
    """What ``dataset.json`` says; it holds no date, so that the same input gives the same bytes."""

    step_s: int
    time_zone: str  # IANA name; the local time of day is part of the input of most methods
    network_hash: str
    splits: Mapping[str, SplitInfo]
    dropped: Mapping[str, int] = field(default_factory=dict)  # trips by reason
    config: Mapping[str, Any] = field(default_factory=dict)  # the settings it was prepared with
    source: str = ""  # name of the file of trips
    schema: int = SCHEMA


class Dataset:
    """A prepared dataset on disk, memory-mapped.

    Parameters
    ----------
    path
        Its folder.

    Raises
    ------
    InputError
        If the folder is not a prepared dataset, or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.info = _read_info(self.path)
        self._splits = {name: Split(self.path / name, self.info, name) for name in SPLITS}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(split)} {name}" for name, split in self._splits.items())
        return f"Dataset({str(self.path)!r}, trips: {sizes})"

    @cached_property
    def network(self) -> RoadNetwork:
        """The road network."""
        network = RoadNetwork.load(self.path / "network.npz")
        if network.hash != self.info.network_hash:
            raise InputError(
                f"this is network {network.hash}, but the dataset was made with {self.info.network_hash}",
                file=self.path / "network.npz",
                remedy="Prepare the dataset again.",
            )
        return network

    def split(self, name: SplitName) -> Split:
        """Return the trips of ``train``, ``valid`` or ``test``."""
        return self._splits[name]

    def with_train(self, which: ArrayLike) -> Dataset:
        """Return the dataset with a part of its training trips, given by number; ``info`` stays that of the folder."""
        out = copy.copy(self)
        out._splits = {**self._splits, "train": self._splits["train"].part(which)}  # noqa: SLF001  (its own copy)
        return out


class Split:
    """The trips of one split, read from its shards when asked for."""

    def __init__(self, folder: Path, info: DatasetInfo, name: str) -> None:
        self.name = name
        self.step_s = info.step_s
        size = info.splits[name]
        self._shards = [_open_shard(folder / f"{k:05d}") for k in range(size.shards)]
        self._first = np.cumsum([0, *(len(shard["start"]) for shard in self._shards)])
        self._part: NDArray[np.int64] | None = None  # numbers of the stored trips that belong to it; None: all
        if (len(self), self.n_steps) != (size.trips, size.steps):
            raise InputError(
                f"there are {len(self)} trips and {self.n_steps} steps, not {size.trips} and {size.steps} as said",
                file=folder,
                remedy="Prepare the dataset again.",
            )

    def __len__(self) -> int:
        return int(self._first[-1]) if self._part is None else len(self._part)

    @property
    def n_steps(self) -> int:
        """Number of steps of all trips together."""
        if self._part is not None:
            return int(self.lengths.sum())
        return sum(len(shard["segment"]) for shard in self._shards)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of steps of each trip [T]."""
        stored = np.concatenate([np.zeros(0, np.int64), *(np.diff(shard["offset"]) for shard in self._shards)])
        return stored if self._part is None else stored[self._part]

    def part(self, which: ArrayLike) -> Split:
        """Return some of the trips, given by number, as a split of their own: they are numbered from 0 in it."""
        chosen = self._stored(which)
        out = copy.copy(self)
        out.__dict__.pop("lengths", None)
        out._part = chosen  # noqa: SLF001  (its own copy)
        return out

    def _stored(self, which: ArrayLike | None) -> NDArray[np.int64]:
        """Return the numbers under which trips are stored."""
        wanted = np.arange(len(self)) if which is None else np.asarray(which, np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"{self.name} has the trips 0 to {len(self) - 1}")
        return wanted if self._part is None else self._part[wanted]

    def shards(self) -> Iterator[Trips]:
        """Yield all trips, shard by shard, so that memory stays small."""
        bounds = self._first if self._part is None else np.append(np.arange(0, len(self), SHARD_TRIPS), len(self))
        for first, end in itertools.pairwise(bounds.tolist()):
            yield self.trips(np.arange(first, end))

    def trips(self, which: ArrayLike | None = None) -> Trips:
        """Return trips with fixes and true positions, one row a step.

        Parameters
        ----------
        which
            Numbers of trips, in the wanted order; all if not given.
        """
        wanted = self._stored(which)
        lengths = self.lengths if which is None else self.lengths[np.asarray(which, np.int64)]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        columns = {name: np.empty(offsets[-1], dtype) for name, dtype in _STEPS.items()}
        start = np.empty(len(wanted), np.int64)
        ids = np.empty(len(wanted), object)
        home = np.searchsorted(self._first, wanted, side="right") - 1
        for k in np.unique(home).tolist():
            shard, here = self._shards[k], np.flatnonzero(home == k)
            local = wanted[here] - self._first[k]
            to = ranges(offsets[here], lengths[here])
            rows = ranges(shard["offset"][local], lengths[here])
            for name, column in columns.items():
                column[to] = shard[name][rows]
            start[here] = shard["start"][local]
            text, bound = shard["id_text"], shard["id_offset"]
            ids[here] = [bytes(text[bound[i] : bound[i + 1]]).decode() for i in local.tolist()]
        count = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        with np.errstate(invalid="ignore"):  # a NaN of whatever bits is a NaN
            ratio = columns["ratio"].astype(np.float64)
        return Trips(
            traj_id=as_text(ids),
            offsets=offsets,
            time=np.repeat(start, lengths) + count * self.step_s,
            lon=columns["lon"],
            lat=columns["lat"],
            segment=columns["segment"],
            ratio=ratio,
        )


def write_dataset(
    path: str | Path,
    network: RoadNetwork,
    splits: Mapping[str, Iterable[Trips]],
    *,
    step_s: int,
    time_zone: str,
    dropped: Mapping[str, int] | None = None,
    config: Mapping[str, Any] | None = None,
    source: str = "",
) -> Dataset:
    """Write a dataset and return it; the folder appears when it is whole.

    Parameters
    ----------
    path
        The folder, which must not exist.
    network
        The road network of the true positions.
    splits
        The shards of each split: trips whose fixes are ``step_s`` seconds apart and carry segment and ratio.
    step_s, time_zone, dropped, config, source
        See :class:`DatasetInfo`.
    """
    with replacing_folder(path) as folder:
        network.save(folder / "network.npz")
        sizes: dict[str, SplitInfo] = {}
        for name in SPLITS:
            written = [
                _write_shard(folder / name / f"{k:05d}", trips, step_s) for k, trips in enumerate(splits.get(name, ()))
            ]
            sizes[name] = SplitInfo(sum(t for t, _ in written), sum(n for _, n in written), len(written))
        info = DatasetInfo(step_s, time_zone, network.hash, sizes, dict(dropped or {}), dict(config or {}), source)
        (folder / "dataset.json").write_text(json.dumps(asdict(info), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return Dataset(path)


def shards_of(trips: Trips, size: int = SHARD_TRIPS) -> Iterable[Trips]:
    """Yield trips in shards of ``size``."""
    for first in range(0, len(trips), size):
        yield trips.select(np.arange(first, min(first + size, len(trips))))


def _write_shard(folder: Path, trips: Trips, step_s: int) -> tuple[int, int]:
    if trips.segment is None or trips.ratio is None:
        raise ValueError("trips of a dataset carry segment and ratio")
    if (trips.lengths == 0).any():
        raise ValueError("trips of a dataset have at least one step")
    first = np.repeat(trips.offsets[:-1], trips.lengths)
    if (trips.time != trips.time[first] + (np.arange(trips.n_fixes) - first) * step_s).any():
        raise ValueError(f"steps of a dataset are {step_s} s apart")
    folder.mkdir(parents=True)
    ids = [text.encode() for text in trips.traj_id.tolist()]
    arrays = {
        "start": trips.time[trips.offsets[:-1]],
        "offset": trips.offsets,
        "id_offset": np.concatenate([[0], np.cumsum([len(text) for text in ids])]),
        "id_text": np.frombuffer(b"".join(ids), np.uint8),
        "lon": trips.lon,
        "lat": trips.lat,
        "segment": trips.segment,
        "ratio": trips.ratio,
    }
    for name, dtype in itertools.chain(_TRIPS.items(), _STEPS.items()):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(arrays[name], dtype))
    return len(trips), trips.n_fixes


def _open_shard(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a shard, mapped into memory, with all that others rely on checked."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in itertools.chain(_TRIPS.items(), _STEPS.items()):
        file = existing_file(folder / f"{name}.npy", "part of a prepared dataset")
        try:
            arrays[name] = array = open_array(file)
        except DAMAGED as error:
            raise InputError(f"this is not a whole array ({error})", file=file, remedy="Prepare again.") from error
        if array.ndim != 1 or array.dtype != dtype:
            raise InputError(f"it holds {array.ndim} dimensions of {array.dtype}, not {np.dtype(dtype)}", file=file)
    trips, steps = len(arrays["start"]), len(arrays["segment"])
    whole = (
        all(len(arrays[name]) == steps for name in _STEPS)
        and _divides(arrays["offset"], trips, steps)
        and (arrays["offset"][1:] > arrays["offset"][:-1]).all()
        and _divides(arrays["id_offset"], trips, len(arrays["id_text"]))
    )
    if not whole:
        raise InputError("the arrays of this shard do not fit together", file=folder, remedy="Prepare again.")
    if not _are_texts(arrays["id_text"], arrays["id_offset"]):
        raise InputError("the ids of trips are not UTF-8", file=folder / "id_text.npy", remedy="Prepare again.")
    if trips and not (arrays["start"].min() > _TIMES[0] and arrays["start"].max() < _TIMES[1]):
        raise InputError("a trip starts at no time of any calendar", file=folder / "start.npy", remedy="Prepare again.")
    return arrays


def _divides(offset: NDArray[np.int64], parts: int, end: int) -> bool:
    """Return whether offsets divide so many entries into parts."""
    return bool(len(offset) == parts + 1 and offset[0] == 0 and offset[-1] == end and (offset[1:] >= offset[:-1]).all())


def _are_texts(text: NDArray[np.uint8], offset: NDArray[np.int64]) -> bool:
    """Return whether bytes between offsets are UTF-8: all together are, and no offset is within a character."""
    try:
        text.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return not (text[offset[offset < len(text)]] & 0xC0 == 0x80).any()


def _read_info(folder: Path) -> DatasetInfo:
    if not folder.is_dir():
        raise InputError(
            "there is no such folder (a prepared dataset)", file=folder, remedy="Make one with 'tedtrajrec prepare'."
        )
    file = folder / "dataset.json"
    values = read_json(file, "the description of a prepared dataset")
    try:
        if values["schema"] != SCHEMA:
            raise InputError(
                f"the dataset has schema {values['schema']}; this version reads {SCHEMA}",
                file=file,
                remedy="Prepare it again.",
            )
        return info_from(values)
    except DAMAGED as error:
        raise InputError(f"this does not describe a prepared dataset ({error})", file=file) from error


def info_from(values: Mapping[str, Any]) -> DatasetInfo:
    """Return the description of a dataset as it was read from JSON; any other values raise one of ``DAMAGED``."""
    splits = {name: SplitInfo(**values["splits"][name]) for name in SPLITS}
    info = DatasetInfo(**{**values, "splits": splits})
    counts = [info.step_s, *(count for split in splits.values() for count in asdict(split).values())]
    texts, tables = (info.time_zone, info.network_hash, info.source), (info.dropped, info.config)
    if not all(type(count) is int and 0 <= count < 1 << 48 for count in counts) or info.step_s == 0:
        raise ValueError("step_s or a count is no whole number")
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(table, dict) for table in tables)):
        raise ValueError("a name or a table of it is of another type")
    json.dumps(values, ensure_ascii=False).encode()  # text that is none
    return info
