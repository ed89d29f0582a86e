"""The list of all that was not used, as CSV: fixes and trips with the reason, and rows that cannot be read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from tedtrajrec.files import replacing

COLUMNS = ("traj_id", "timestamp", "reason", "row", "column", "value")
"""Header; ``timestamp`` is in epoch seconds and empty for a whole trip. The last three are for unreadable rows."""

Reject = tuple[str, int | None, str]
UnreadableRow = tuple[int, str, str, str]  # number, column, value, reason


def default_place(output: Path) -> Path:
    """Return where the rejects of an output go if no place is given: ``trips.csv.gz`` has ``trips.rejects.csv``."""
    name = output.name.removesuffix(".gz")
    return output.with_name(f"{Path(name).stem}.rejects.csv")


def write_rejects(rejects: Iterable[Reject], unreadable: Iterable[UnreadableRow], path: str | Path) -> None:
    """Write the list; the file is whole or absent."""
    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows((name, "" if time is None else time, reason, "", "", "") for name, time, reason in rejects)
        rows.writerows(("", "", reason, row, column, value) for row, column, value, reason in unreadable)
