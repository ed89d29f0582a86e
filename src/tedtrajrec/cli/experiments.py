"""Verbs about experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def benchmark(
    plan: Annotated[Path, typer.Argument(help="TOML file of datasets and cells; see docs/evaluating.md.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for a row of JSON for each cell.")],
    datasets: Annotated[
        list[str] | None, typer.Option("--dataset", help="Where a dataset of the plan lies, NAME=FOLDER; repeatable.")
    ] = None,
    runs: Annotated[Path | None, typer.Option("--runs", help="Folder of training runs [OUTPUT/runs].")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Cells run side by side.")] = 1,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Time for all; what is left is done when the command is repeated.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Run the experiments of a plan that have no row yet, and print all rows as tables."""
    from tedtrajrec.errors import ConfigError
    from tedtrajrec.experiments.cells import run_plan
    from tedtrajrec.experiments.plan import read_plan
    from tedtrajrec.experiments.table import format_rows

    paths = dict(text.partition("=")[::2] for text in datasets or ())
    if not all(paths.values()):
        raise ConfigError("A dataset is given as NAME=FOLDER, for example --dataset chengdu=data/chengdu.")
    rows = run_plan(
        read_plan(plan, paths), output, runs=runs, jobs=jobs, minutes=minutes, device=device, say=typer.echo
    )
    typer.echo(format_rows(rows))
    if any("fixed" in row["metrics"] for row in rows):
        typer.echo("\nOn the prescribed draws:\n\n" + format_rows(rows, "fixed"))
