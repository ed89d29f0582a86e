"""The verb that shows recovered trips."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tedtrajrec.cli.options import Columns, mapping

app = typer.Typer()


@app.command("map")
def map_(
    recovered: Annotated[
        list[Path], typer.Argument(help="Recovered trips; several files of the same trips are compared.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")],
    network: Annotated[
        Path | None, typer.Option("--network", help="Road network they were recovered on: the map below them.")
    ] = None,
    sparse: Annotated[Path | None, typer.Option("--sparse", help="The fixes they were recovered from.")] = None,
    truth: Annotated[Path | None, typer.Option("--truth", help="The whole trips, where they are known.")] = None,
    trips: Annotated[int, typer.Option("--trips", help="Show the first so many trips.", min=1)] = 20,
    columns: Columns = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="IANA time zone of the clock on the map, and of times without one.")
    ] = None,
) -> None:
    """Draw recovered trips on a map in one HTML file that needs nothing else."""
    from tedtrajrec.maps.html import map_file

    summary = map_file(
        recovered,
        output,
        network=network,
        sparse=sparse,
        truth=truth,
        trips=trips,
        columns=mapping(columns),
        timezone=timezone,
    )
    typer.echo(f"{output}: {summary}")
