"""Verbs from files of trips to files of trips."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tedtrajrec.cli.options import Columns, Config, Network, Output, Ray, Seed, TimeZone, Trips, mapping, one_setting
from tedtrajrec.errors import ConfigError

app = typer.Typer()


@app.command()
def simulate(
    network: Network,
    output: Output,
    trips: Annotated[int, typer.Option("--trips", help="How many trips.", min=1)] = 1000,
    step: Annotated[int, typer.Option("--step", help="Seconds between fixes.", min=1)] = 15,
    seed: Seed = 0,
    config: Config = None,
    overrides: Annotated[list[str] | None, one_setting("noise.drift_m=5")] = None,
) -> None:
    """Simulate trips with exact truth (segment and ratio at every step) and noisy fixes."""
    from tedtrajrec.stages import simulate_file

    written = simulate_file(
        network, output, trips=trips, step_s=step, seed=seed, config=config, overrides=overrides or ()
    )
    typer.echo(f"{output}: {written.trips:,} trips, {written.fixes:,} fixes")


@app.command()
def clean(
    trips: Annotated[Path, typer.Argument(help="Trips or vehicle streams: CSV, Parquet, GeoParquet, GPX.")],
    output: Output,
    rejects: Annotated[
        Path | None, typer.Option("--rejects", help="CSV that lists every dropped fix and trip with its reason.")
    ] = None,
    network: Annotated[Path | None, typer.Option("--network", help="Crop trips to this road network.")] = None,
    columns: Columns = None,
    timezone: TimeZone = None,
    config: Config = None,
    overrides: Annotated[list[str] | None, one_setting("max_gap_s=300")] = None,
) -> None:
    """Cut streams into trips, put fixes in order, drop what cannot be true; count and list all that is dropped."""
    from tedtrajrec.stages import clean_file

    summary = clean_file(
        trips,
        output,
        rejects=rejects,
        network=network,
        columns=mapping(columns),
        timezone=timezone,
        config=config,
        overrides=overrides or (),
    )
    typer.echo(f"{output}\n{summary}")


@app.command()
def match(
    trips: Annotated[
        Path, typer.Argument(help="Trips, in order of time: CSV, Parquet, GeoParquet, GPX, or a folder of parts.")
    ],
    network: Network,
    output: Output,
    preset: Annotated[
        Literal["default", "nk09", "song12"], typer.Option("--preset", help="Ours, or a published matcher.")
    ] = "default",
    noise: Annotated[
        float | None, typer.Option("--noise", help="Error of a fix across the road in metres (default: estimated).")
    ] = None,
    routes: Annotated[
        Path | None, typer.Option("--routes", help="Also write the routes driven: .parquet, .geojson or .csv.")
    ] = None,
    columns: Columns = None,
    timezone: TimeZone = None,
    ray: Ray = None,
) -> None:
    """Match fixes to the road network: segment, ratio, distance and probability of each, and the routes driven.

    Of a folder of Parquet parts, another one is made, with the same parts.
    """
    from tedtrajrec.cluster.parts import match_parts
    from tedtrajrec.cluster.pool import over_chunks
    from tedtrajrec.stages import match_file

    if trips.is_dir() and routes is not None:
        raise ConfigError(f"Routes go into one file, but {trips} is a folder of parts; leave out --routes.")
    names = mapping(columns)
    with over_chunks(ray) as over:
        if trips.is_dir():
            summary = match_parts(
                trips,
                output,
                network=network,
                preset=preset,
                noise_m=noise,
                columns=names,
                timezone=timezone,
                over=over,
            )
        else:
            summary = match_file(
                trips,
                output,
                network=network,
                routes=routes,
                preset=preset,
                noise_m=noise,
                columns=names,
                timezone=timezone,
                over=over,
            )
    typer.echo(f"{output}: {summary}")


@app.command()
def thin(
    trips: Trips,
    output: Output,
    keep: Annotated[str, typer.Option("--keep", help="Nominal share of fixes to keep, such as 1/8.")] = "1/8",
    rule: Annotated[
        Literal["exact", "bernoulli", "uniform"], typer.Option("--rule", help="How the kept fixes are drawn.")
    ] = "exact",
    seed: Seed = 0,
    columns: Columns = None,
    timezone: TimeZone = None,
) -> None:
    """Thin trips to a share of their fixes; the first and the last stay."""
    from tedtrajrec.stages import thin_file

    summary = thin_file(trips, output, keep=keep, rule=rule, seed=seed, columns=mapping(columns), timezone=timezone)
    typer.echo(f"{output}: {summary}")


@app.command()
def plot(
    trips: Trips,
    network: Network,
    output: Output,
    sparse: Annotated[Path | None, typer.Option("--sparse", help="The same trips thinned, drawn as dots.")] = None,
    columns: Columns = None,
    timezone: TimeZone = None,
) -> None:
    """Draw trips on the road network."""
    from tedtrajrec.network.roadnet import RoadNetwork
    from tedtrajrec.trips.plot import plot_trips
    from tedtrajrec.trips.readers import read_trips

    names = mapping(columns)
    plot_trips(
        RoadNetwork.load(network),
        read_trips(trips, columns=names, timezone=timezone),
        output,
        sparse=None if sparse is None else read_trips(sparse, columns=names, timezone=timezone),
    )
    typer.echo(str(output))
