"""Trips that tell less of those who drove them: without their ends, and under other names."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects
from tedtrajrec.trips.table import TEXT, Trips, as_text

Floats = NDArray[np.float64]

KEY_VARIABLE = "TEDTRAJREC_HASH_KEY"
_LEAST_KEY_BYTES, _MOST_KEY_BYTES = 16, 64  # fewer can be guessed; BLAKE2b takes no more
_EARTH_M = 6_371_000.0
_MARGIN = 1.01  # the Earth is no sphere: chords of one are right to 0.6 %
_APART_M = 1e9  # between the trips of a chunk in the fourth dimension of the search


class HashKey(NamedTuple):
    """What ids are hashed with."""

    text: str
    is_fresh: bool  # drawn now, known to nobody else


def metres(text: str) -> float:
    """Return a distance such as ``200m``, ``0.2 km`` or ``200`` in metres."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(m|km)?\s*", text, re.ASCII)
    if found is None:
        raise ConfigError(f"'{text}' is not a distance; give one such as 200m or 0.5km.")
    return float(found[1]) * (1000 if found[2] == "km" else 1)


def find_key(file: str | Path | None = None) -> HashKey:
    """Return the key of a file, else that of the environment, else a fresh one that is kept nowhere.

    Raises
    ------
    TedtrajrecError
        If the key is so short that it could be guessed, or longer than the hash takes.
    """
    if file is not None:
        path = existing_file(file, "a key for hashing ids")
        try:
            text = path.read_text("utf-8").strip()
        except ValueError as error:
            raise InputError("the key is not text", file=path, remedy="Write it as hexadecimal digits.") from error
        where = str(path)
    elif os.environ.get(KEY_VARIABLE):
        text, where = os.environ[KEY_VARIABLE].strip(), KEY_VARIABLE
    else:
        return HashKey(secrets.token_hex(32), is_fresh=True)
    if not _LEAST_KEY_BYTES <= len(text.encode()) <= _MOST_KEY_BYTES:
        raise ConfigError(
            f"The key of {where} has {len(text.encode())} bytes; give {_LEAST_KEY_BYTES} to {_MOST_KEY_BYTES}, for "
            "example what 'openssl rand -hex 32' prints."
        )
    return HashKey(text, is_fresh=False)


def hash_ids(ids: NDArray[Any], key: str) -> NDArray[Any]:
    """Return 32 hexadecimal digits for each id (keyed BLAKE2b); equal ids get equal ones, under one key only."""
    names = ids.tolist()
    hashed = {name: _hash(name, key) for name in set(names)}
    return as_text([hashed[name] for name in names]) if names else np.empty(0, TEXT)


def _hash(name: str, key: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16, key=key.encode()).hexdigest()


def with_hashed_ids(recovered: RecoveredTrips, key: str) -> RecoveredTrips:
    """Return recovered trips and their rejects under hashed ids."""
    rejects = dataclasses.replace(recovered.rejects, traj_id=hash_ids(recovered.rejects.traj_id, key))
    return dataclasses.replace(recovered, traj_id=hash_ids(recovered.traj_id, key), rejects=rejects)


def trim_ends(recovered: RecoveredTrips, fixes: Trips, distance_m: float, *, step_s: int) -> RecoveredTrips:
    """Return recovered trips without the rows near to where they begin and end.

    A row goes if it is within ``distance_m`` of an end as the crow flies, whether the trip is just setting out or comes
    by again later; no way along the network is shorter. Ends are the first and the last row of each trip and of its
    pieces (a long gap between fixes may hide a stop), of all its alternatives, and the first and the last fix.

    Parameters
    ----------
    recovered
        What was recovered.
    fixes
        What it was recovered from.
    distance_m
        In metres.
    step_s
        Seconds between rows; where there are more, a new piece begins.

    Returns
    -------
    Trips of at least two rows. Those of which less is left are among the rejects.
    """
    _, code = np.unique(np.concatenate([recovered.traj_id, fixes.traj_id]), return_inverse=True)
    trip_code, fixes_code = code[: len(recovered)], code[len(recovered) :]
    row_code = np.repeat(trip_code, recovered.lengths)

    start = np.diff(recovered.trip_of_row, prepend=-1) != 0
    start[1:] |= np.diff(recovered.time) > step_s
    end = np.append(start[1:], np.ones(min(1, len(start)), bool))
    is_end = start | end
    some = np.flatnonzero(fixes.lengths > 0)
    outer = np.concatenate([fixes.offsets[:-1][some], fixes.offsets[1:][some] - 1])
    ends = _places(
        np.concatenate([recovered.lon[is_end], fixes.lon[outer]]),
        np.concatenate([recovered.lat[is_end], fixes.lat[outer]]),
        np.concatenate([row_code[is_end], fixes_code[some], fixes_code[some]]),
    )
    rows = _places(recovered.lon, recovered.lat, row_code)
    away, _ = cKDTree(ends).query(rows, distance_upper_bound=distance_m * _MARGIN)
    keep = np.isinf(away)

    left = np.bincount(recovered.trip_of_row[keep], minlength=len(recovered))
    gone = (left < 2) & (recovered.rank == 0)
    rejected = recovered.traj_id[gone]
    rejects = Rejects(
        rejected,
        np.full(len(rejected), NO_TIME),
        as_text([f"nothing is left beyond {distance_m:g} m of its ends"] * len(rejected)),
    )
    trimmed = dataclasses.replace(
        recovered.keep_rows(keep),
        broken=_carried_on(recovered, keep),
        rejects=Rejects.concat([recovered.rejects, rejects]),
    )
    return trimmed.select((left >= 2) & ~np.isin(trip_code, trip_code[gone]))


def _carried_on(recovered: RecoveredTrips, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for the rows that stay whether there is a break between them and the row that stays before them."""
    breaks = np.cumsum(recovered.broken)[keep]
    first = np.diff(recovered.trip_of_row[keep], prepend=-1) != 0
    broken: NDArray[np.bool_] = (np.diff(breaks, prepend=0) > 0) & ~first
    return broken


def _places(lon: Floats, lat: Floats, code: NDArray[np.int64]) -> Floats:
    """Return points [N, 4]: on the globe in metres, and far from those of other trips."""
    east, north = np.radians(lon), np.radians(lat)
    x, y, z = np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)
    return np.column_stack([_EARTH_M * x, _EARTH_M * y, _EARTH_M * z, _APART_M * code])
