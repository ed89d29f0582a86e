"""Which column of a table holds what: the usual names are recognised, others are named by the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tedtrajrec.errors import InputError

CANONICAL = ("traj_id", "timestamp", "lon", "lat", "segment", "ratio")
"""Our own column names, as written to files."""

# Names are compared in lower case without signs: "Trip ID", "tripId" and "TRIP_ID" are all "tripid". Each role has
# tiers: the first tier with a match decides, two matches within it are ambiguous.
_TRIP_NAMES = {
    "tripid", "trajectoryid", "trackid", "journeyid", "rideid", "orderid", "tid", "trip", "trajectory", "track",
}  # fmt: skip
_OWNER_NAMES = {
    "uid", "userid", "vehicleid", "deviceid", "taxiid", "driverid", "carid", "busid", "truckid", "unitid", "agentid",
    "personid", "individualid", "imei", "mmsi", "licenseplate", "plate", "user", "vehicle", "device", "taxi", "driver",
}  # fmt: skip
_TIERS: dict[str, tuple[set[str], ...]] = {
    "traj_id": ({"trajid"}, _TRIP_NAMES, _OWNER_NAMES, {"id"}),
    "timestamp": (
        {"timestamp"},
        {
            "datetime", "time", "trackedat", "recordedat", "fixtime", "gpstime", "gpsdatetime", "eventtime",
            "timestamputc", "timeutc", "utctime", "datetimeutc", "utcdatetime", "timestampms", "unixtime",
            "unixtimestamp", "dateandtime", "epoch", "epochtime", "epochms", "epochseconds",
        },
        {"t", "ts", "date"},
    ),
    "lon": ({"lon"}, {"longitude", "lng", "long", "gpslon", "gpslongitude", "locationlong", "locationlon"}, {"x"}),
    "lat": ({"lat"}, {"latitude", "gpslat", "gpslatitude", "locationlat"}, {"y"}),
    # Not "edge_id": that is the key of some edge table, and a segment is a number 0..S-1 of our network.
    "segment": ({"segment"},),
    "ratio": ({"ratio"},),
}  # fmt: skip
_STRONG_TIERS = 2  # of lon and lat: x and y give way to a geometry column


@dataclass(frozen=True)
class Columns:
    """The columns of a table by what they hold; all names are those in the table."""

    traj_id: tuple[str, ...]  # more than one: the trip is known by all of them together
    timestamp: str
    lon: str | None  # None: the point geometry holds the position
    lat: str | None
    geometry: str | None
    segment: str | None
    ratio: str | None
    extras: Mapping[str, str]  # name in Trips -> name in the table

    @property
    def needed(self) -> list[str]:
        """All columns that are read, without repeats."""
        roles = (*self.traj_id, self.timestamp, self.lon, self.lat, self.geometry, self.segment, self.ratio)
        return list(dict.fromkeys(name for name in (*roles, *self.extras.values()) if name is not None))


def find_columns(
    names: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    *,
    file: str | Path | None = None,
    geometry: str | None = None,
    keep: Collection[str] | None = None,
) -> Columns:
    """Return which of the columns ``names`` holds what.

    Parameters
    ----------
    names
        The column names of the table.
    mapping
        Our name -> name in the table, for those that are not recognised. ``traj_id`` may be several columns joined
        with ``+``; an empty text leaves ``segment`` or ``ratio`` unread, as an extra column.
    file
        For messages.
    geometry
        The column of point geometries, where the table has one.
    keep
        Names of the extra columns to keep; all by default.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise InputError(
                f"the header has the column name '{name}' twice", file=file, remedy="Give every column its own name."
            )
    chosen: dict[str, tuple[str, ...]] = {}
    for role, value in (mapping or {}).items():
        chosen[role] = _from_mapping(role, value, names, file)
    for role in CANONICAL:
        if role not in chosen:
            chosen[role] = _recognise(role, names, file, weak=geometry is None)
    has_position = bool(chosen["lon"] and chosen["lat"])
    required = ("traj_id", "timestamp", "lon", "lat") if geometry is None else ("traj_id", "timestamp")
    if missing := [role for role in required if not chosen[role]]:
        remedy = _how_to_name(*missing)
        if "traj_id" in missing:
            remedy += " For a single vehicle, add a column with one value."
        raise InputError(f"no column for {_and(missing)}; found: {_listed(names)}", file=file, remedy=remedy)
    used = [name for role in CANONICAL for name in chosen[role] if has_position or role not in ("lon", "lat")]
    if len(set(used)) < len(used):
        twice = next(name for name in used if used.count(name) > 1)
        raise InputError("one column cannot hold two things", file=file, field=twice, remedy="Check --columns.")
    # A trip id joined from several columns, or of a vehicle, says less than the columns themselves: keep those.
    joined = set(chosen["traj_id"]) if len(chosen["traj_id"]) > 1 else set()
    extras = {
        f"{name}_in_file" if name in CANONICAL else name: name
        for name in names
        if (name not in used or name in joined) and name != geometry
    }
    if keep is not None:
        for name in keep:
            if name not in extras:
                raise InputError(f"there is no extra column '{name}' to keep; found: {_listed(names)}", file=file)
        extras = {ours: theirs for ours, theirs in extras.items() if ours in keep}
    first = {role: next(iter(chosen[role]), None) for role in CANONICAL}
    return Columns(
        traj_id=chosen["traj_id"],
        timestamp=chosen["timestamp"][0],
        lon=first["lon"] if has_position else None,
        lat=first["lat"] if has_position else None,
        geometry=None if has_position else geometry,
        segment=first["segment"],
        ratio=first["ratio"],
        extras=extras,
    )


def _from_mapping(role: str, value: str, names: Sequence[str], file: str | Path | None) -> tuple[str, ...]:
    if role not in CANONICAL:
        raise InputError(
            f"'{role}' is none of our column names", remedy=f"Name one of {', '.join(CANONICAL)} in --columns."
        )
    if value == "" and role in ("segment", "ratio"):
        return ()
    parts = (value,) if value in names or role != "traj_id" else tuple(part.strip() for part in value.split("+"))
    for part in parts:
        if part not in names:
            raise InputError(
                f"there is no column '{part}' (asked for as {role}); found: {_listed(names)}",
                file=file,
                remedy=_how_to_name(role),
            )
    return parts


def _recognise(role: str, names: Sequence[str], file: str | Path | None, *, weak: bool) -> tuple[str, ...]:
    tiers = _TIERS[role]
    if role in ("lon", "lat") and not weak:
        tiers = tiers[:_STRONG_TIERS]
    for tier in tiers:
        found = [name for name in names if _plain(name) in tier]
        exact = [name for name in found if name == role]
        if exact:
            return (role,)
        if len(found) > 1:
            raise InputError(
                f"columns {' and '.join(map(repr, found))} could each be {role}",
                file=file,
                remedy=_how_to_name(role, example=found[0]),
            )
        if found:
            # scikit-mobility numbers trips (tid) anew for every user (uid).
            owner = [name for name in names if _plain(name) in ("uid", "userid")]
            return (owner[0], found[0]) if _plain(found[0]) == "tid" and len(owner) == 1 else (found[0],)
    return ()


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _how_to_name(*roles: str, example: str = "X") -> str:
    options = " ".join(f"--columns {role}={example}" for role in roles)
    python = ", ".join(f"'{role}': '{example}'" for role in roles)
    return f"Name {'it' if len(roles) == 1 else 'them'} with {options} (in Python columns={{{python}}})."
