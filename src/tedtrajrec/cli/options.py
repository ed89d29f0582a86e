"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tedtrajrec.errors import ConfigError

Trips = Annotated[Path, typer.Argument(help="Trips: CSV, Parquet, GeoParquet, GPX.")]
DatasetPath = Annotated[Path, typer.Argument(help="Dataset made by 'prepare'.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write; its suffix chooses the format.")]
Network = Annotated[Path, typer.Option("--network", help="Road network made by 'network build'.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", help="Name of a column in the file, such as lon=X; repeat for more.", metavar="NAME=COLUMN"
    ),
]
TimeZone = Annotated[str | None, typer.Option("--timezone", help="IANA time zone of times that carry none.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings in TOML.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")]
Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", help="Python file with a method of your own; repeat for more.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Work on a Ray cluster: its address, 'auto' for the one of this machine, 'local' to start one.",
        metavar="ADDRESS",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same result.")]


def one_setting(example: str) -> Any:  # noqa: ANN401  (a class that Typer does not export)
    """Return the option ``--set`` with an example that the verb takes."""
    return typer.Option("--set", help=f"One setting, such as {example}; repeat for more.")


def mapping(entries: list[str] | None) -> dict[str, str] | None:
    """Return ``NAME=COLUMN`` options as a mapping."""
    if not entries:
        return None
    pairs = [entry.partition("=") for entry in entries]
    for entry, (name, sign, _) in zip(entries, pairs, strict=True):
        if not (name and sign):  # an empty column is meant: 'segment=' leaves a column of that name alone
            raise ConfigError(f"Option --columns {entry} is not of the form NAME=COLUMN, for example lon=X.")
    return {name: column for name, _, column in pairs}


def load_plugins(files: list[Path] | None) -> None:
    """Make the methods of ``--plugin`` options known."""
    if files:
        from tedtrajrec.methods.plugins import load_plugin

        for file in files:
            load_plugin(file)
