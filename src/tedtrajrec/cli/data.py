"""Verbs about prepared datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tedtrajrec.cli.options import Columns, Config, DatasetPath, Network, Ray, TimeZone, mapping, one_setting

prepare_app = typer.Typer()
app = typer.Typer(help="Describe, pack and unpack prepared datasets.", no_args_is_help=True)


@prepare_app.command()
def prepare(
    trips: Annotated[
        Path, typer.Argument(help="Raw or matched trips: CSV, Parquet, GeoParquet, GPX, or a folder of Parquet parts.")
    ],
    network: Network,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the dataset.")],
    step: Annotated[
        int | None, typer.Option("--step", help="Seconds between target steps (default: 15).", min=1)
    ] = None,
    timezone: TimeZone = None,
    rejects: Annotated[
        Path | None, typer.Option("--rejects", help="CSV that lists every dropped row, fix and trip with its reason.")
    ] = None,
    columns: Columns = None,
    config: Config = None,
    overrides: Annotated[list[str] | None, one_setting("drop.min_duration_s=600")] = None,
    ray: Ray = None,
) -> None:
    """Clean and match trips, put them on the step grid with their true positions, and split them for training.

    Interrupted work goes on where it was when the same command is given again.
    """
    from tedtrajrec.cluster.pool import over_chunks
    from tedtrajrec.config import load_config
    from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset

    settings = [
        *([] if step is None else [f"step_s={step}"]),
        *([] if timezone is None else [f"time_zone={timezone}"]),
        *(f"columns.{name}={column}" for name, column in (mapping(columns) or {}).items()),
        *(overrides or ()),
    ]
    prepared = load_config(PrepareConfig, config, settings)
    with over_chunks(ray) as over:
        summary = prepare_dataset(trips, network, output, prepared, rejects=rejects, over=over, show_progress=True)
    typer.echo(f"{output}: {summary}")


@app.command()
def info(
    dataset: DatasetPath,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for pictures.")] = None,
) -> None:
    """Print what is in a dataset; with -o, draw trips, lengths, intervals and traffic by hour."""
    from tedtrajrec.data.dataset import Dataset
    from tedtrajrec.data.describe import describe_dataset, tally_splits
    from tedtrajrec.data.plot import plot_dataset

    prepared = Dataset(dataset)
    tallies = tally_splits(prepared)
    typer.echo(str(describe_dataset(prepared, tallies)))
    if output is not None:
        for picture in plot_dataset(prepared, output, tallies=tallies):
            typer.echo(str(picture))


@app.command()
def pack(dataset: DatasetPath, output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")]) -> None:
    """Write a dataset as one compact file that can travel."""
    from tedtrajrec.data.dataset import Dataset
    from tedtrajrec.data.pack import pack_dataset

    pack_dataset(Dataset(dataset), output)
    typer.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


@app.command()
def unpack(
    packed: Annotated[Path, typer.Argument(help="File made by 'data pack'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the dataset.")],
) -> None:
    """Make the dataset of a packed file again."""
    from tedtrajrec.data.pack import unpack_dataset

    typer.echo(str(unpack_dataset(packed, output)))
