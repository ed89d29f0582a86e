"""Verbs about experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tedtrajrec.cli.options import DatasetPath, Device, Plugins, Ray, load_plugins
from tedtrajrec.errors import ConfigError

app = typer.Typer()

Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Where a dataset lies; repeat for more.", metavar="NAME=FOLDER"),
]


@app.command()
def benchmark(
    plan: Annotated[Path, typer.Argument(help="TOML file of datasets and cells; see docs/reproducing.md.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for a row of JSON for each cell.")],
    datasets: Datasets = None,
    known: Annotated[
        list[Path] | None,
        typer.Option("--known", help="Folder whose rows count too: what has one there is not run; repeat for more."),
    ] = None,
    runs: Annotated[Path | None, typer.Option("--runs", help="Folder of training runs (default: OUTPUT/runs).")] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Cells run side by side (default: 1, on Ray all processors)."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Time for all; what is left is done when the command is repeated.")
    ] = None,
    device: Device = "auto",
    plugins: Plugins = None,
    ray: Ray = None,
) -> None:
    """Run the experiments of a plan that have no row yet, and print all rows as tables."""
    from tedtrajrec.cluster.plan import run_plan_on_ray
    from tedtrajrec.experiments.cells import FailedCellsError, run_plan
    from tedtrajrec.experiments.plan import read_plan
    from tedtrajrec.experiments.provenance import benchmark_command
    from tedtrajrec.experiments.table import format_rows

    load_plugins(plugins)
    read = read_plan(plan, _folders(datasets))
    settings: dict[str, Any] = {
        "known": known or (),
        "runs": runs,
        "minutes": minutes,
        "device": device,
        "command": benchmark_command(plan, output, read.datasets, plugins or (), known or ()),
        "say": typer.echo,
    }
    failed: FailedCellsError | None = None
    try:
        if ray is None:
            rows = run_plan(read, output, jobs=jobs or 1, **settings)
        else:
            rows = run_plan_on_ray(read, output, ray, jobs=jobs, gpus=float(device == "cuda"), **settings)
    except FailedCellsError as error:
        failed, rows = error, error.rows
    typer.echo(format_rows(rows))
    if any("fixed" in row["metrics"] for row in rows):
        typer.echo("\nOn the prescribed draws:\n\n" + format_rows(rows, "fixed"))
    if failed is not None:
        raise failed


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of rows of 'benchmark' and 'uses', or of what 'evaluate -o' wrote.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report.html, report.md and figures.")],
    plans: Annotated[
        list[Path] | None, typer.Option("--plan", help="Plan whose cells are shown, empty where they have no row.")
    ] = None,
    datasets: Datasets = None,
    plugins: Plugins = None,
) -> None:
    """Make one report of all rows: every table and figure of the paper, as HTML and Markdown."""
    from tedtrajrec.experiments.report import make_report

    load_plugins(plugins)
    page = make_report(results, output, plans=plans or (), datasets=_folders(datasets))
    typer.echo(f"{page}\n{page.with_suffix('.md')}")


@app.command()
def uses(
    dataset: DatasetPath,
    results: Annotated[Path, typer.Argument(help="Folder of rows of 'benchmark', with its trips.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for a row of JSON for each cell.")],
    cells: Annotated[
        list[str] | None,
        typer.Option(
            "--cells", help="Names of cells, * for anything; repeat for more (default: all).", metavar="PATTERN"
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Search and cluster the trips that cells recovered, as the paper's last table does, and print what came of it."""
    from tedtrajrec.experiments.uses import format_uses, run_uses

    typer.echo(format_uses(run_uses(dataset, results, output, cells=cells or ("*",), device=device, say=typer.echo)))


@app.command("case-study")
def draw_case(
    dataset: DatasetPath,
    results: Annotated[list[Path], typer.Argument(help="Folders of rows of 'benchmark', with their trips.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the picture and its row.")],
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="Method to draw; repeat for more (default: the paper's and ours)."),
    ] = None,
    keep: Annotated[str, typer.Option("--keep", help="Nominal share of observed steps.")] = "1/8",
) -> None:
    """Draw one trip, chosen by rule, on which methods differ."""
    from tedtrajrec.experiments.case_study import METHODS, case_study

    typer.echo(str(case_study(dataset, results, output, methods=methods or METHODS, keep=keep)))


def _folders(entries: list[str] | None) -> dict[str, str]:
    """Return ``NAME=FOLDER`` options as a mapping."""
    folders = {name: folder for name, _, folder in (entry.partition("=") for entry in entries or ())}
    if not all((*folders, *folders.values())):
        raise ConfigError("A dataset is given as NAME=FOLDER, for example --dataset chengdu=data/chengdu.")
    return folders
