"""Verbs about road networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tedtrajrec.cli.options import Output

app = typer.Typer(help="Build, describe and draw road networks.", no_args_is_help=True)


@app.command("build")
def build(
    source: Annotated[str, typer.Argument(help="OSM extract, edge table, or 'synthetic'.")],
    output: Output,
    bbox: Annotated[str | None, typer.Option("--bbox", help="Only this box: west,south,east,north in degrees.")] = None,
    largest_component: Annotated[
        bool, typer.Option("--largest-component", help="Keep only the largest mutually reachable part.")
    ] = False,
    service: Annotated[bool, typer.Option("--service", help="Include service roads of an OSM extract.")] = False,
    country: Annotated[str | None, typer.Option("--country", help="ISO code for default speed limits (OSM).")] = None,
    u_turns: Annotated[
        bool | None, typer.Option("--u-turns/--no-u-turns", help="Keep the U-turns of an edge table (default: yes).")
    ] = None,
) -> None:
    """Build a road network from an OpenStreetMap extract or an edge table."""
    from tedtrajrec.network.bbox import parse_bbox
    from tedtrajrec.network.build import build_network
    from tedtrajrec.work import only_run

    with only_run(output):
        network = build_network(
            source,
            bbox=None if bbox is None else parse_bbox(bbox),
            service=service,
            country=country,
            u_turns=u_turns,
            largest_component_only=largest_component,
        )
        network.save(output)
    typer.echo(f"{output}: {network.n_segments:,} segments, {network.n_nodes:,} nodes, {network.hash}")


@app.command("info")
def info(network: Annotated[Path, typer.Argument(help="Road network made by 'network build'.")]) -> None:
    """Print counts, lengths by class, connectivity, bounding box and memory."""
    from tedtrajrec.network.describe import describe
    from tedtrajrec.network.roadnet import RoadNetwork

    typer.echo(str(describe(RoadNetwork.load(network))))


@app.command("plot")
def plot(
    network: Annotated[Path, typer.Argument(help="Road network made by 'network build'.")], output: Output
) -> None:
    """Draw the road network."""
    from tedtrajrec.network.plot import plot_network
    from tedtrajrec.network.roadnet import RoadNetwork

    plot_network(RoadNetwork.load(network), output)
    typer.echo(str(output))
