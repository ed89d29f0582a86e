"""The product's main job end to end, on a made-up city."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import typer

DEMO = (
    "network build synthetic -o {0}/network.npz",
    "network info {0}/network.npz",
    "network plot {0}/network.npz -o {0}/network.png",
    "simulate --network {0}/network.npz --trips 1000 --step 15 --seed 1 -o {0}/trips.parquet",
    "thin {0}/trips.parquet --keep 1/8 --seed 1 -o {0}/sparse.csv",
    "match {0}/sparse.csv --network {0}/network.npz --routes {0}/routes.geojson -o {0}/matched.parquet",
    "prepare {0}/trips.parquet --network {0}/network.npz --step 15 --timezone Europe/Lisbon -o {0}/dataset",
    "data info {0}/dataset -o {0}/pictures",
    "evaluate linear_hmm,route_hmm,lookup {0}/dataset --keep 1/8 -o {0}/metrics",
    "plot {0}/trips.parquet --sparse {0}/sparse.csv --network {0}/network.npz -o {0}/trips.png",
)
"""The commands as one would type them."""


def run_demo(app: typer.Typer, output: Path) -> None:
    """Run all commands of the demonstration and show each."""
    start = time.perf_counter()
    for line in DEMO:
        words = [word.format(output) for word in line.split()]
        typer.secho(f"$ tedtrajrec {shlex.join(words)}", bold=True)
        app(words, standalone_mode=False)
    typer.echo(f"Done in {time.perf_counter() - start:.0f} s. Look at {output / 'trips.png'}.")
