"""Folders of Parquet parts in, folders of Parquet parts out: a part of the input becomes the part of that name.

Parts are made one by one, here or on a cluster, by the functions that make whole files. Until all are there they are
kept in ``OUTPUT.work``, so that interrupted work goes on where it was; workers on other machines must see both folders.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tedtrajrec import __version__
from tedtrajrec.config import to_dict
from tedtrajrec.errors import OutputError
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.recovery.stream import describe_input, describe_model, recover_file
from tedtrajrec.recovery.summary import RecoverySummary
from tedtrajrec.stages import MatchSummary, make_matcher, match_with
from tedtrajrec.threads import Over, labelled
from tedtrajrec.trips.files.folders import trip_files
from tedtrajrec.trips.match import Matcher
from tedtrajrec.work import WorkFolder, only_run, read_json, write_json

_OURS = r".+\.(parquet|csv|json)|.+\.parquet\.parts|\..+\.lock"
_DONE = ".json"  # ending of the account of a part, which is written last

Places = tuple[Path, Path]  # of a part: where it is and where to put what is made of it


def match_parts(
    source: str | Path,
    output: str | Path,
    *,
    network: str | Path,
    preset: str = "default",
    noise_m: float | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    over: Over = map,
) -> MatchSummary:
    """Match the trips of all parts in a folder; see :func:`tedtrajrec.stages.match_file`.

    Parameters
    ----------
    source, output
        Folders of Parquet parts; every trip is whole in one part.
    network, preset, noise_m, columns, timezone
        As for :func:`tedtrajrec.stages.match_file`.
    over
        How parts are gone through; the result does not depend on it.
    """
    matcher = make_matcher(network, preset, noise_m)
    settings = {"columns": None if columns is None else dict(columns), "timezone": timezone}
    recipe = {"match": to_dict(matcher.config), "network": matcher.network.hash, **settings}
    accounts = _each_part(source, output, recipe, _MatchPart(matcher, columns, timezone), over)
    status: Counter[str] = Counter()
    for account in accounts:
        status.update(account["status"])
    return MatchSummary(
        sum(account["trips"] for account in accounts), dict(status), sum(account["breaks"] for account in accounts)
    )


@dataclass(frozen=True)
class _MatchPart:
    """Matches one part."""

    matcher: Matcher
    columns: Mapping[str, str] | None
    timezone: str | None

    def __call__(self, places: Places) -> dict[str, Any]:
        return asdict(match_with(self.matcher, *places, columns=self.columns, timezone=self.timezone))


def recover_parts(
    source: str | Path,
    output: str | Path,
    recoverer: Recoverer,
    *,
    step_s: int | None = None,
    alternatives: int = 0,
    trim_ends_m: float = 0.0,
    hash_key: str | None = None,
    extras: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    over: Over = map,
) -> RecoverySummary:
    """Recover the trips of all parts in a folder; see :func:`tedtrajrec.recovery.stream.recover_file`.

    Beside each part of the output lies the list of what was rejected, where anything was.

    Parameters
    ----------
    source, output
        Folders of Parquet parts; every trip is whole in one part.
    recoverer, step_s, alternatives, trim_ends_m, hash_key, extras, columns, timezone
        As for :func:`tedtrajrec.recovery.stream.recover_file`.
    over
        How parts are gone through; the result does not depend on it.
    """
    options = {
        "step_s": step_s,
        "alternatives": alternatives,
        "trim_ends_m": trim_ends_m,
        "hash_key": hash_key,
        "extras": extras,
        "columns": columns,
        "timezone": timezone,
    }
    key = None if hash_key is None else hashlib.blake2b(hash_key.encode()).hexdigest()
    recipe = {"model": describe_model(recoverer), "options": {**options, "hash_key": key}}
    accounts = _each_part(source, output, recipe, _RecoverPart(recoverer, options), over)
    return _added([RecoverySummary(**account) for account in accounts], str(output))


@dataclass(frozen=True)
class _RecoverPart:
    """Recovers one part."""

    recoverer: Recoverer
    options: Mapping[str, Any]

    def __call__(self, places: Places) -> dict[str, Any]:
        return asdict(recover_file(*places, self.recoverer, **self.options))


def _each_part(
    source: str | Path,
    output: str | Path,
    recipe: Mapping[str, Any],
    function: Callable[[Places], dict[str, Any]],
    over: Over,
) -> list[dict[str, Any]]:
    """Make the parts of a folder and return the account of each; the folder appears when all are there."""
    files, place = trip_files(source), Path(output).resolve()
    with only_run(place):
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            raise OutputError(f"{output} exists already; remove it or give another name.")
        inputs = {path.name: describe_input(path) for path in files}
        work = WorkFolder(
            place.with_name(f"{place.name}.work"),
            {"tedtrajrec": __version__, "inputs": inputs, **recipe},
            ours=_OURS,
        )
        accounts = {path: work.folder / f"{path.name}{_DONE}" for path in files}
        missing = ((path, (path.resolve(), work.folder / path.name)) for path in files if not accounts[path].exists())
        for path, account in labelled(over, function, missing):
            write_json(accounts[path], account)
        found = [read_json(accounts[path]) for path in files]
        for account_file in (*accounts.values(), work.folder / "recipe.json"):
            account_file.unlink()
        if place.exists():
            place.rmdir()
        work.folder.rename(place)
    return found


def _added(parts: list[RecoverySummary], place: str) -> RecoverySummary:
    """Return the summary of all parts together."""
    rejects: Counter[str] = Counter()
    for part in parts:
        rejects.update(part.rejects)
    sure = [(part.confident, part.steps) for part in parts if part.confident is not None]
    steps = sum(count for _, count in sure)
    return RecoverySummary(
        trips_in=sum(part.trips_in for part in parts),
        trips=sum(part.trips for part in parts),
        fixes_in=sum(part.fixes_in for part in parts),
        fixes_used=sum(part.fixes_used for part in parts),
        rows_unreadable=sum(part.rows_unreadable for part in parts),
        rejects=dict(rejects.most_common()),
        steps=sum(part.steps for part in parts),
        km=round(sum(part.km for part in parts), 3),
        hours=sum(part.hours for part in parts),
        confident=sum(share * count for share, count in sure) / steps if steps else None,
        breaks=sum(part.breaks for part in parts),
        break_hours=sum(part.break_hours for part in parts),
        rejects_file=f"the .rejects.csv files in {place}",
    )
