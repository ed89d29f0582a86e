"""The product's main job end to end, on a made-up city."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shlex
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import typer

TRIPS, EPOCHS = 9_000, 2
"""Of the demonstration; tests run a smaller one."""

DEMO = (
    "network build synthetic -o {0}/network.npz",
    "network info {0}/network.npz",
    "network plot {0}/network.npz -o {0}/network.png",
    "simulate --network {0}/network.npz --trips {trips} --step 15 --seed 1 -o {0}/trips.parquet",
    "thin {0}/trips.parquet --keep 1/8 --seed 1 -o {0}/sparse.csv",
    "plot {0}/trips.parquet --sparse {0}/sparse.csv --network {0}/network.npz -o {0}/trips.png",
    "prepare {0}/trips.parquet --network {0}/network.npz --step 15 --timezone Europe/Lisbon -o {0}/dataset",
    "data info {0}/dataset -o {0}/pictures",
    (
        "train tedtrajrec_parallel {0}/dataset -o {0}/run --device cpu --set train.epochs={epochs} --set train.batch=64"
        " --set train.lr=3e-3 --set train.most_valid=400 --set model.d=32 --set model.heads=4 --set model.width=64"
        " --set model.hidden=32 --set model.dropout=0"
    ),
    "match {0}/sparse.csv --network {0}/network.npz --routes {0}/routes.geojson -o {0}/matched.parquet",
    "evaluate linear_hmm,route_hmm,lookup,{0}/run {0}/dataset --keep 1/8 --steps -o {0}/metrics",
    "report {0}/metrics --dataset dataset={0}/dataset -o {0}/report",
    "simulate --network {0}/network.npz --trips 200 --step 15 --seed 2 -o {0}/new_trips.parquet",
    "thin {0}/new_trips.parquet --keep 1/8 --seed 2 -o {0}/new_sparse.csv",
    "recover {0}/new_sparse.csv --model {0}/run --summary {0}/summary.csv -o {0}/recovered.parquet",
    (
        "map {0}/recovered.parquet --network {0}/network.npz --sparse {0}/new_sparse.csv --truth {0}/new_trips.parquet"
        " --timezone Europe/Lisbon -o {0}/map.html"
    ),
)
"""The commands as one would type them."""

REHEARSAL = (
    "simulate --network {0}/network.npz --trips 100 --step 15 --seed 3 -o {1}/trips.parquet",
    "thin {1}/trips.parquet --keep 1/8 --seed 3 -o {1}/sparse.csv",
    "match {1}/sparse.csv --network {0}/network.npz --routes {1}/routes.geojson -o {1}/matched.parquet",
    "prepare {1}/trips.parquet --network {0}/network.npz --step 15 --timezone Europe/Lisbon -o {1}/dataset",
    "evaluate linear_hmm,route_hmm,lookup {1}/dataset --keep 1/8 -o {1}/metrics",
    "recover {1}/sparse.csv --method linear_hmm --network {0}/network.npz --step 15 -o {1}/recovered.parquet",
)
"""What comes after training, with a few trips: its first use compiles the parts that are compiled, which takes a minute
or two on one core, and training does not need all cores."""


def demo_commands(output: Path, *, trips: int = TRIPS, epochs: int = EPOCHS) -> list[list[str]]:
    """Return the words of each command of the demonstration."""
    return [[word.format(output, trips=trips, epochs=epochs) for word in line.split()] for line in DEMO]


def rehearsal_commands(output: Path, folder: Path) -> list[list[str]]:
    """Return the words of each command of the rehearsal, which writes to another folder."""
    return [[word.format(output, folder) for word in line.split()] for line in REHEARSAL]


def run_demo(app: typer.Typer, output: Path, *, trips: int = TRIPS, epochs: int = EPOCHS) -> None:
    """Run all commands of the demonstration and show each."""
    start = time.perf_counter()
    rehearsal: BaseProcess | None = None
    for words in demo_commands(output, trips=trips, epochs=epochs):
        if words[0] == "train":
            rehearsal = multiprocessing.get_context("spawn").Process(target=_rehearse, args=(output,), daemon=True)
            rehearsal.start()
        elif rehearsal is not None:
            rehearsal.join()
            rehearsal = None
        typer.secho(f"$ tedtrajrec {shlex.join(words)}", bold=True)
        app(words, standalone_mode=False)
    typer.echo(
        f"Done in {time.perf_counter() - start:.0f} s. Open {output / 'map.html'} in a browser to see recovered trips. "
        f"The methods beside each other: {output / 'report' / 'report.html'}. "
        f"More pictures: {output / 'trips.png'}, {output / 'run' / 'curves.png'} and below {output / 'metrics'}."
    )
    served = [
        "serve",
        f"{output}/run",
        "--examples",
        f"{output}/new_sparse.csv",
        "--truth",
        f"{output}/new_trips.parquet",
    ]
    typer.echo(f"The service with its map page, at port 8000: tedtrajrec {shlex.join(served)}")


def _rehearse(output: Path) -> None:
    """Run what is compiled at its first use, out of sight; what fails here is seen when its turn comes."""
    from tedtrajrec.cli import app

    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        contextlib.suppress(Exception),
    ):
        for words in rehearsal_commands(output, Path(folder)):
            app(words, standalone_mode=False)
