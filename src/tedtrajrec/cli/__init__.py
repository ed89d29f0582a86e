"""The command line: each verb calls one function that Python users can call too.

Libraries load inside the verbs, so that ``--help`` and a mistyped option answer at once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tedtrajrec import __version__
from tedtrajrec.cli import data, experiments, methods, network, recover, serve, trips
from tedtrajrec.cli import map as map_
from tedtrajrec.cli.demo import DEMO, run_demo
from tedtrajrec.errors import TedtrajrecError

__all__ = ["DEMO", "app", "main"]

INTERRUPTED = 128 + signal.SIGINT  # the exit code that Typer makes of Ctrl-C, without a word
GOING_ON = ("prepare", "train", "benchmark", "uses", "recover")  # verbs that keep what is done; the others start over

app = typer.Typer(
    name="tedtrajrec",
    help="Turns sparse, irregular GPS into dense trips on the road network.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(network.app, name="network")
app.add_typer(trips.app)
app.add_typer(data.prepare_app)
app.add_typer(data.app, name="data")
app.add_typer(methods.app)
app.add_typer(experiments.app)
app.add_typer(recover.app)
app.add_typer(serve.app)
app.add_typer(map_.app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's error is one sentence on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # half-written files go, as with Ctrl-C
    _make_room_for_kernels()
    try:
        app(words)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            goes_on = bool(words) and words[0] in GOING_ON
            typer.echo(f"Interrupted{'; the same command goes on from here' if goes_on else ''}.", err=True)
        raise
    except TedtrajrecError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)


def _make_room_for_kernels() -> None:
    """Give numba a private folder for this run where it has none, as in a container without a home.

    It keeps compiled kernels beside the package or below the home, and fails where it can write to neither.
    """
    package, home = Path(__file__).parents[1], Path.home()
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


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
) -> None:
    """Run the main job end to end on a made-up city and show each command."""
    run_demo(app, output)
