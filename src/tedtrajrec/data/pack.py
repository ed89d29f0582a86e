"""Packed datasets: a whole prepared dataset as one small file, to send it to another machine.

The file is a ZIP archive. ``pack.json`` says what is in it, ``network/`` holds the road network, and for each shard of
each split there are three messages of a range coder: ``heads`` (start, number of steps and id of each trip),
``positions`` and ``fixes``. A file cut short is noticed, as is a changed byte, by the
checksums of the archive.

What is exact: segments, starts, ids, numbers of steps, which fixes are missing, which truth is unknown, the network,
``dataset.json``. What is rounded: fixes to whole microdegrees, so by at most 0.056 m north and less east (data with six
decimals stay as they are); ratios to equal parts of the segment of at most 0.2 m, so by at most 0.1 m (0 and 1 stay).
Packing an unpacked dataset gives the same file again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import SPLITS, Dataset, DatasetInfo, info_from, write_dataset
from tedtrajrec.data.packing.fixes import FixModel
from tedtrajrec.data.packing.heads import HeadModel
from tedtrajrec.data.packing.positions import DEGREE, PositionModel
from tedtrajrec.data.packing.range_coder import Coder, reader, writer, written
from tedtrajrec.errors import InputError
from tedtrajrec.files import DAMAGED, check_unpacked, existing_file, replacing
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.progress import progress
from tedtrajrec.trips.table import TEXT, Trips
from tedtrajrec.work import only_run

Ints = NDArray[np.int64]

FORMAT = "tedtrajrec-packed-dataset"
VERSION = 1
PARTS = ("heads", "positions", "fixes")

_STEPS_AT_ONCE = 1 << 16  # so many are coded at a time, since room for the worst case is made beforehand


def pack_dataset(dataset: Dataset, path: str | Path) -> None:
    """Write a prepared dataset as one small file.

    Parameters
    ----------
    dataset
        What to pack; one shard at a time is in memory.
    path
        The file to write.

    Raises
    ------
    InputError
        If the steps of the dataset break its promises (a segment that is not in the network, half a fix).
    OutputError
        If the place cannot be written to.
    """
    network = dataset.network
    codec = _Codec(network)
    shards: dict[str, list[list[int]]] = {name: [] for name in SPLITS}
    with only_run(path), replacing(path) as beside, zipfile.ZipFile(beside, "w") as archive:
        for name, array in network.arrays().items():
            with archive.open(_member(f"network/{name}.npy", zipfile.ZIP_LZMA), "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        count = sum(size.shards for size in dataset.info.splits.values())
        stream = ((name, trips) for name in SPLITS for trips in dataset.split(name).shards())
        for name, trips in progress(stream, "packing", total=count, unit="shard"):
            _check(trips, network, dataset.path / name)
            columns = _columns(trips, codec.parts)
            for part, message in zip(PARTS, codec.pack(columns), strict=True):
                archive.writestr(_member(f"{name}/{len(shards[name]):05d}/{part}"), message)
            shards[name].append([len(trips), trips.n_fixes, len(columns.id_text)])
        header = {
            "format": FORMAT,
            "version": VERSION,
            "info": asdict(dataset.info),
            "network_meta": dict(network.meta),
            "shards": shards,  # for each the numbers of trips, steps, and bytes of ids
        }
        archive.writestr(_member("pack.json", zipfile.ZIP_LZMA), json.dumps(header, ensure_ascii=False))


def unpack_dataset(path: str | Path, folder: str | Path) -> Dataset:
    """Make the folder of a packed dataset again and return the dataset.

    Parameters
    ----------
    path
        A file of :func:`pack_dataset`.
    folder
        The folder to make, which must not exist.

    Raises
    ------
    InputError
        If the file is damaged, or is no packed dataset.
    OutputError
        If the folder exists or cannot be written.
    """
    path = existing_file(path, "a packed dataset, made by 'tedtrajrec data pack'")
    with _reading(path):
        check_unpacked(path)
        archive = zipfile.ZipFile(path)
    with only_run(folder), archive:
        with _reading(path):
            info, network_meta, shards = _read_header(archive, path)
            network = _read_network(archive, network_meta)
            if network.hash != info.network_hash:
                raise ValueError("the network is another one")
            codec = _Codec(network)

        def unpacked(name: str) -> Iterator[Trips]:
            for number, size in enumerate(shards[name]):
                with _reading(path):
                    messages = [archive.read(f"{name}/{number:05d}/{part}") for part in PARTS]
                    trips = _trips(codec.unpack(messages, *size), codec.parts, info.step_s)
                    _check(trips, network, path)
                yield trips

        return write_dataset(
            folder,
            network,
            {name: unpacked(name) for name in SPLITS},
            step_s=info.step_s,
            time_zone=info.time_zone,
            dropped=info.dropped,
            config=info.config,
            source=info.source,
        )


# ---------------------------------------------------------------------- the archive


def _member(name: str, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    """Return a member of the archive without a date, so that equal datasets are equal files."""
    member = zipfile.ZipInfo(name)
    member.compress_type = compression
    return member


def _read_header(
    archive: zipfile.ZipFile, path: Path
) -> tuple[DatasetInfo, dict[str, Any], dict[str, list[list[int]]]]:
    """Return what ``pack.json`` says of the dataset, its network and the sizes of its shards, checked."""
    header = json.loads(archive.read("pack.json"))
    if (header["format"], header["version"]) != (FORMAT, VERSION):
        raise InputError(
            f"this is {header['format']} version {header['version']}, expected {FORMAT} version {VERSION}",
            file=path,
            remedy="Pack the dataset again.",
        )
    shards: dict[str, list[list[int]]] = {name: header["shards"][name] for name in SPLITS}
    sizes = [size for split in shards.values() for size in split]
    if not all(len(size) == 3 and all(type(n) is int and 0 <= n < 1 << 48 for n in size) for size in sizes):
        raise ValueError("the sizes of shards are no whole numbers")
    if not isinstance(header["network_meta"], dict):
        raise TypeError("the description of the network is none")
    return info_from(header["info"]), header["network_meta"], shards


def _read_network(archive: zipfile.ZipFile, meta: dict[str, Any]) -> RoadNetwork:
    arrays = {}
    for name in (field.name for field in fields(RoadNetwork) if field.name != "meta"):
        with archive.open(f"network/{name}.npy") as file:
            arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
            file.read()  # to the end, where the checksum is compared
    return RoadNetwork(**arrays, meta=meta).validate()


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what libraries say about a damaged file into an error that a user understands."""
    try:
        yield
    except InputError as error:
        if error.file is not None:
            raise
        raise InputError(error.problem, file=path, remedy="Pack the dataset again.") from error
    except DAMAGED as error:
        raise InputError(
            "the file is damaged or is not a packed dataset", file=path, remedy="Copy or pack it again."
        ) from error


# ---------------------------------------------------------------------- trips as whole numbers


@dataclass(frozen=True, eq=False)
class _Columns:
    """The trips of a shard as whole numbers."""

    start: Ints  # [T]
    count: Ints  # [T]
    id_offset: Ints  # [T+1]
    id_text: NDArray[np.uint8]
    segment: Ints  # [N] -1 where unknown
    part: Ints  # [N] 0 where unknown
    present: NDArray[np.bool_]  # [N] whether there is a fix
    x: Ints  # [N] microdegrees; 0 without a fix
    y: Ints  # [N]


def _columns(trips: Trips, parts: Ints) -> _Columns:
    assert trips.segment is not None  # noqa: S101  (checked when the dataset was opened)
    assert trips.ratio is not None  # noqa: S101
    ids = [text.encode() for text in trips.traj_id.tolist()]
    segment, present = trips.segment.astype(np.int64), ~np.isnan(trips.lon)
    part = np.zeros(trips.n_fixes, np.int64)
    known = segment >= 0
    part[known] = np.rint(trips.ratio[known] * parts[segment[known]])
    return _Columns(
        start=trips.time[trips.offsets[:-1]],
        count=trips.lengths,
        id_offset=np.concatenate([[0], np.cumsum([len(text) for text in ids])]).astype(np.int64),
        id_text=np.frombuffer(b"".join(ids), np.uint8).copy(),
        segment=segment,
        part=part,
        present=present,
        x=np.rint(np.where(present, trips.lon, 0) * DEGREE).astype(np.int64),
        y=np.rint(np.where(present, trips.lat, 0) * DEGREE).astype(np.int64),
    )


def _trips(columns: _Columns, parts: Ints, step_s: int) -> Trips:
    offsets = np.concatenate([[0], np.cumsum(columns.count)])
    number = np.arange(offsets[-1]) - np.repeat(offsets[:-1], columns.count)
    text, bound = columns.id_text.tobytes(), columns.id_offset.tolist()
    return Trips(
        traj_id=np.array([text[a:b].decode() for a, b in itertools.pairwise(bound)], TEXT),
        offsets=offsets,
        time=np.repeat(columns.start, columns.count) + number * step_s,
        lon=np.where(columns.present, columns.x / DEGREE, np.nan),
        lat=np.where(columns.present, columns.y / DEGREE, np.nan),
        segment=columns.segment.astype(np.int32),
        ratio=np.where(columns.segment >= 0, columns.part / parts[columns.segment], np.nan),
    )


def _check(trips: Trips, network: RoadNetwork, file: Path) -> None:
    """Refuse steps that no prepared dataset has; some of them would come back as others."""
    assert trips.segment is not None  # noqa: S101
    assert trips.ratio is not None  # noqa: S101
    known, ratio = trips.segment >= 0, trips.ratio
    seen = np.isfinite(trips.lon)
    checks = {
        "segment": (trips.segment >= -1) & (trips.segment < network.n_segments),
        "ratio": np.where(known, (ratio >= 0) & (ratio <= 1), np.isnan(ratio)),
        "lon": np.where(seen, np.abs(trips.lon) <= 180, np.isnan(trips.lon)),
        "lat": np.where(seen, np.abs(trips.lat) <= 90, np.isnan(trips.lat)),
    }
    for name, fine in checks.items():
        if not fine.all():
            step = int(np.argmin(fine))
            trip = trips.traj_id[np.searchsorted(trips.offsets, step, side="right") - 1]
            raise InputError(
                f"trip '{trip}' has a step with segment {trips.segment[step]}, ratio {ratio[step]:g}, lon"
                f" {trips.lon[step]:g}, lat {trips.lat[step]:g}",
                file=file,
                field=name,
                remedy="Prepare the dataset again.",
            )


class _Codec:
    """Codes shard after shard; what was learnt from one serves the next, so all are read in the order of writing."""

    def __init__(self, network: RoadNetwork) -> None:
        self._heads = HeadModel()
        self._positions = PositionModel(network)
        self._fixes = FixModel()
        self.parts = self._positions.roads.parts

    def pack(self, columns: _Columns) -> list[bytes]:
        """Return the messages of a shard in the order of ``PARTS``."""
        return [written(coder) for coder in self._code([writer() for _ in PARTS], columns)]

    def unpack(self, messages: list[bytes], trips: int, steps: int, id_bytes: int) -> _Columns:
        """Return the shard of messages."""
        columns = _Columns(
            start=np.zeros(trips, np.int64),
            count=np.zeros(trips, np.int64),
            id_offset=np.zeros(trips + 1, np.int64),
            id_text=np.zeros(id_bytes, np.uint8),
            segment=np.zeros(steps, np.int64),
            part=np.zeros(steps, np.int64),
            present=np.zeros(steps, np.bool_),
            x=np.zeros(steps, np.int64),
            y=np.zeros(steps, np.int64),
        )
        self._code([reader(message) for message in messages], columns)
        return columns

    def _code(self, coders: list[Coder], c: _Columns) -> list[Coder]:
        heads, positions, fixes = coders
        heads = self._heads.code(heads, c.start, c.count, c.id_offset, c.id_text)
        offset = np.concatenate([[0], np.cumsum(c.count)])
        if offset[-1] != len(c.segment):
            raise ValueError(f"trips have {offset[-1]} steps, not {len(c.segment)}")
        road_x, road_y = np.zeros(len(c.segment), np.int64), np.zeros(len(c.segment), np.int64)
        blocks = np.flatnonzero(np.diff(offset[:-1] // _STEPS_AT_ONCE, prepend=-1, append=len(c.segment)))
        for first, end in itertools.pairwise(blocks.tolist()):
            part = offset[first : end + 1]
            positions = self._positions.code(positions, part, c.segment, c.part, road_x, road_y)
            fixes = self._fixes.code(
                fixes, self._positions.roads, part, c.segment, c.part, road_x, road_y, c.present, c.x, c.y
            )
        return [heads, positions, fixes]
