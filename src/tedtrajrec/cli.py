"""The command line: each verb calls one function that Python users can call too.

Libraries load inside the verbs, so that ``--help`` and a mistyped option answer at once.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from tedtrajrec import __version__
from tedtrajrec.errors import ConfigError, TedtrajrecError

app = typer.Typer(
    name="tedtrajrec",
    help="Turns sparse, irregular GPS into dense trips on the road network.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
network_app = typer.Typer(help="Build, describe and draw road networks.", no_args_is_help=True)
app.add_typer(network_app, name="network")

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
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, such as noise.drift_m=5; repeat for more.")
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same result.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's error is one sentence on standard error and exit code 2."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # half-written files go, as with Ctrl-C
    _make_room_for_kernels()
    try:
        app(arguments)
    except TedtrajrecError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)


def _make_room_for_kernels() -> None:
    """Give numba a private folder for this run where it has none, as in a container without a home.

    It keeps compiled kernels beside the package or below the home, and fails where it can write to neither.
    """
    package, home = Path(__file__).parent, Path.home()
    if not ("NUMBA_CACHE_DIR" in os.environ or os.access(package, os.W_OK) or os.access(home, os.W_OK)):
        folder = tempfile.mkdtemp(prefix="tedtrajrec-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["NUMBA_CACHE_DIR"] = folder


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tedtrajrec {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@network_app.command("build")
def network_build(
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


@network_app.command("info")
def network_info(network: Annotated[Path, typer.Argument(help="Road network made by 'network build'.")]) -> None:
    """Print counts, lengths by class, connectivity, bounding box and memory."""
    from tedtrajrec.network.describe import describe
    from tedtrajrec.network.roadnet import RoadNetwork

    typer.echo(str(describe(RoadNetwork.load(network))))


@network_app.command("plot")
def network_plot(
    network: Annotated[Path, typer.Argument(help="Road network made by 'network build'.")], output: Output
) -> None:
    """Draw the road network."""
    from tedtrajrec.network.plot import plot_network
    from tedtrajrec.network.roadnet import RoadNetwork

    plot_network(RoadNetwork.load(network), output)
    typer.echo(str(output))


@app.command()
def simulate(
    network: Network,
    output: Output,
    trips: Annotated[int, typer.Option("--trips", help="How many trips.", min=1)] = 1000,
    step: Annotated[int, typer.Option("--step", help="Seconds between fixes.", min=1)] = 15,
    seed: Seed = 0,
    config: Config = None,
    overrides: Overrides = None,
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
    overrides: Overrides = None,
) -> None:
    """Cut streams into trips, put fixes in order, drop what cannot be true; count and list all that is dropped."""
    from tedtrajrec.stages import clean_file

    summary = clean_file(
        trips,
        output,
        rejects=rejects,
        network=network,
        columns=_mapping(columns),
        timezone=timezone,
        config=config,
        overrides=overrides or (),
    )
    typer.echo(f"{output}\n{summary}")


@app.command()
def match(
    trips: Annotated[Path, typer.Argument(help="Trips, in order of time: CSV, Parquet, GeoParquet, GPX.")],
    network: Network,
    output: Output,
    preset: Annotated[
        Literal["default", "nk09", "song12"], typer.Option("--preset", help="Ours, or a published matcher.")
    ] = "default",
    noise: Annotated[
        float | None, typer.Option("--noise", help="Error of a fix across the road in metres (default: estimated).")
    ] = None,
    columns: Columns = None,
    timezone: TimeZone = None,
) -> None:
    """Match fixes to the road network: segment, ratio, distance and probability of each."""
    from tedtrajrec.stages import match_file

    summary = match_file(
        trips, output, network=network, preset=preset, noise_m=noise, columns=_mapping(columns), timezone=timezone
    )
    typer.echo(f"{output}: {summary}")


@app.command()
def thin(
    trips: Annotated[Path, typer.Argument(help="Trips: CSV, Parquet, GeoParquet, GPX.")],
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

    summary = thin_file(trips, output, keep=keep, rule=rule, seed=seed, columns=_mapping(columns), timezone=timezone)
    typer.echo(f"{output}: {summary}")


@app.command()
def plot(
    trips: Annotated[Path, typer.Argument(help="Trips: CSV, Parquet, GeoParquet, GPX.")],
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

    mapping = _mapping(columns)
    plot_trips(
        RoadNetwork.load(network),
        read_trips(trips, columns=mapping, timezone=timezone),
        output,
        sparse=None if sparse is None else read_trips(sparse, columns=mapping, timezone=timezone),
    )
    typer.echo(str(output))


DEMO = (
    "network build synthetic -o {0}/network.npz",
    "network info {0}/network.npz",
    "network plot {0}/network.npz -o {0}/network.png",
    "simulate --network {0}/network.npz --trips 1000 --step 15 --seed 1 -o {0}/trips.parquet",
    "clean {0}/trips.parquet --network {0}/network.npz --rejects {0}/rejects.csv -o {0}/clean.parquet",
    "thin {0}/clean.parquet --keep 1/8 --seed 1 -o {0}/sparse.csv",
    "plot {0}/clean.parquet --sparse {0}/sparse.csv --network {0}/network.npz -o {0}/trips.png",
)
"""The product's main job end to end, as one would type it."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
) -> None:
    """Run the main job end to end on a made-up city and show each command."""
    start = time.perf_counter()
    for line in DEMO:
        words = [word.format(output) for word in line.split()]
        typer.secho(f"$ tedtrajrec {shlex.join(words)}", bold=True)
        app(words, standalone_mode=False)
    typer.echo(f"Done in {time.perf_counter() - start:.0f} s. Look at {output / 'trips.png'}.")


def _mapping(entries: list[str] | None) -> dict[str, str] | None:
    """Return ``NAME=COLUMN`` options as a mapping."""
    if not entries:
        return None
    pairs = [entry.partition("=") for entry in entries]
    for entry, (name, sign, _) in zip(entries, pairs, strict=True):
        if not (name and sign):  # an empty column is meant: 'segment=' leaves a column of that name alone
            raise ConfigError(f"Option --columns {entry} is not of the form NAME=COLUMN, for example lon=X.")
    return {name: column for name, _, column in pairs}
