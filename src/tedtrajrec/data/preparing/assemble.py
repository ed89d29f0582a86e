"""All parts together become the dataset: trips that occur twice go, the others are divided and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.clock import local_seconds
from tedtrajrec.data.dataset import SHARD_TRIPS, SPLITS, write_dataset
from tedtrajrec.data.preparing import listing
from tedtrajrec.data.preparing.config import PrepareConfig, SplitConfig
from tedtrajrec.data.preparing.drops import DENSE_ENOUGH, TOO_SPARSE, Drop, count_drops
from tedtrajrec.data.preparing.fingerprints import SharedFixes, hash_trips, is_repeated
from tedtrajrec.data.preparing.parts import Work
from tedtrajrec.data.preparing.splitting import NO_SPLIT, split_by_day, split_by_trip
from tedtrajrec.errors import InputError
from tedtrajrec.files import replacing
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import as_text

Codes = NDArray[np.int8]


def assemble(
    work: Work, network: RoadNetwork, config: PrepareConfig, described: Mapping[str, Any], source: str
) -> None:
    """Write the dataset, and the list of all that was dropped, into the folder of the parts.

    Parameters
    ----------
    described
        The settings as they are written into the dataset.
    source
        Name of the file of trips.
    """
    traj_id, start, given, hashes = _trips_of(work)
    why = np.zeros(len(traj_id), np.uint8)
    why[is_repeated(hashes, given)] = Drop.REPEATED_TRIP
    kept = np.flatnonzero(why == 0)
    split = np.full(len(traj_id), NO_SPLIT, np.int8)
    split[kept] = _divide(traj_id[kept], start[kept], given[kept], config.split, config.time_zone)
    if config.drop.shared_fixes:
        shared = _most_shared(work, split) >= config.drop.shared_fixes
        why[shared], split[shared] = Drop.SHARED_FIXES, NO_SPLIT
    account = work.account()
    dropped = dict(Counter(account.cleaned.trips_dropped) + Counter(account.dropped) + Counter(count_drops(why)))
    if (split == NO_SPLIT).all():
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items())
        sparse = 2 * dropped.get(TOO_SPARSE, 0) > sum(dropped.values())
        remedy = DENSE_ENOUGH if sparse else "Loosen the settings."
        raise InputError(f"no trip is left; dropped: {reasons}", file=source, remedy=remedy)
    _write_list(work, why)
    write_dataset(
        work.dataset,
        network,
        {name: work.shards(split == code, SHARD_TRIPS) for code, name in enumerate(SPLITS)},
        step_s=config.step_s,
        time_zone=config.time_zone,
        dropped=dropped,
        config=described,
        source=source,
    )


def _trips_of(work: Work) -> tuple[NDArray[Any], NDArray[np.int64], Codes, NDArray[np.uint64]]:
    """Return id, start, given split and hash of the fixes of all trips."""
    ids, starts, splits, hashes = [], [], [], []
    for traj_id, offsets, time, split, fixes, fix_offsets in work.columns(
        "traj_id", "offsets", "time", "split", "fixes", "fix_offsets"
    ):
        ids.append(as_text(traj_id))
        starts.append(time[offsets[:-1]])
        splits.append(split)
        hashes.append(hash_trips(fixes, fix_offsets))
    return np.concatenate(ids), np.concatenate(starts), np.concatenate(splits), np.concatenate(hashes)


def _divide(
    traj_id: NDArray[Any], start: NDArray[np.int64], given: Codes, config: SplitConfig, time_zone: str
) -> Codes:
    if config.by == "column":
        return given
    if config.by == "day":
        return split_by_day(local_seconds(start, time_zone) // 86_400, config.shares, config.seed)
    return split_by_trip(traj_id, config.shares, config.seed)


def _most_shared(work: Work, split: Codes) -> NDArray[np.int64]:
    """Return for each training trip how many fixes it shares with one trip of another split; 0 for other trips."""
    train = SPLITS.index("train")
    apart = split > train
    fixes, trips = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    first = 0
    for hashes, offsets in work.columns("fixes", "fix_offsets"):
        trip = np.repeat(np.arange(first, first + len(offsets) - 1), np.diff(offsets))
        fixes.append(hashes[apart[trip]])
        trips.append(trip[apart[trip]])
        first += len(offsets) - 1
    shared = SharedFixes(np.concatenate(fixes), np.concatenate(trips))
    most = [shared.most(hashes, offsets) for hashes, offsets in work.columns("fixes", "fix_offsets")]
    return np.where(split == train, np.concatenate(most), 0)


def _write_list(work: Work, why: NDArray[np.uint8]) -> None:
    first = 0
    with replacing(work.rejects) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        file.write(listing.HEADER)
        file.writelines(work.texts("rejects"))
        for traj_id, offsets, time, lon, lat in work.columns("traj_id", "offsets", "time", "lon", "lat"):
            mine = why[first : first + len(traj_id)]
            first += len(traj_id)
            gone = np.flatnonzero(mine)
            at = offsets[gone]
            file.write(listing.trip_rows(as_text(traj_id[gone]), time[at], lon[at], lat[at], mine[gone]))
        file.write(str((work.all_read or {}).get("unreadable", "")))
