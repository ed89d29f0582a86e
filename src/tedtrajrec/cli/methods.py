"""Verbs about methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tedtrajrec.cli.options import DatasetPath, Overrides, Seed

app = typer.Typer()


@app.command("methods")
def list_methods() -> None:
    """List the methods that recover trips."""
    from tedtrajrec.methods.registry import describe_methods

    for name, line in describe_methods().items():
        typer.echo(f"{name:<14}{line}")


@app.command()
def train(
    method: Annotated[str, typer.Argument(help="Learned method; see 'methods'.")],
    dataset: DatasetPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run directory; a stopped run there goes on.")],
    preset: Annotated[
        Literal["default", "paper"], typer.Option("--preset", help="What wins on validation, or the paper's text.")
    ] = "default",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, such as model.d=128 or train.epochs=20.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", help="Stop cleanly after so long; give the command again to go on.")
    ] = None,
) -> None:
    """Train a method on a dataset; the best weights by validation accuracy are kept."""
    from tedtrajrec.training.curves import plot_curves
    from tedtrajrec.training.train import train_method

    fitted = train_method(
        method,
        dataset,
        output,
        preset=preset,
        overrides=overrides or (),
        device=device,
        max_minutes=max_minutes,
        show_progress=True,
    )
    typer.echo(f"{output}: {fitted}")
    if fitted.epochs:
        typer.echo(str(plot_curves(output)))


@app.command()
def evaluate(
    method: Annotated[str, typer.Argument(help="Method or folder of a saved one; several with commas between.")],
    dataset: DatasetPath,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Nominal share of observed steps; repeat for more [1/8].")
    ] = None,
    rule: Annotated[
        Literal["exact", "bernoulli", "uniform"], typer.Option("--rule", help="How observed steps are drawn.")
    ] = "exact",
    split: Annotated[Literal["train", "valid", "test"], typer.Option("--split", help="Trips to recover.")] = "test",
    seed: Seed = 0,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for metrics.json and one row a trip.")
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="With -o, also write every recovered step and draw pictures.")
    ] = False,
) -> None:
    """Recover the trips of a dataset from some of their steps and print how well that went."""
    from tedtrajrec.evaluation.evaluate import evaluate_methods
    from tedtrajrec.evaluation.report import format_table

    evaluations = evaluate_methods(
        [name for name in method.split(",") if name],
        dataset,
        keep=keep or ["1/8"],
        rule=rule,
        split=split,
        seed=seed,
        overrides=overrides or (),
        output=output,
        keep_steps=steps,
    )
    typer.echo(format_table(evaluations))
