"""Verbs about methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tedtrajrec.cli.options import DatasetPath, Plugins, Seed, load_plugins, one_setting

app = typer.Typer()


@app.command("methods")
def list_methods(plugins: Plugins = None) -> None:
    """List the methods that recover trips: what each does, its family, what it needs, where it is documented."""
    from tedtrajrec.methods.registry import describe_method, documented, method_entry, method_names

    load_plugins(plugins)
    for name in method_names():
        entry = method_entry(name)
        typer.echo(f"{name:<21}{describe_method(name)}")
        typer.echo(f"{'':<21}{entry.family} · needs {entry.needs} · {entry.paper} · {documented(name)}")


@app.command()
def train(
    method: Annotated[str, typer.Argument(help="Method that learns; see 'methods'.")],
    dataset: DatasetPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run directory; a stopped run there goes on.")],
    preset: Annotated[
        Literal["default", "paper", "authors"],
        typer.Option("--preset", help="What wins on validation, the paper's text, or a method's own authors."),
    ] = "default",
    overrides: Annotated[list[str] | None, one_setting("model.d=128 or train.epochs=20")] = None,
    start: Annotated[
        str | None, typer.Option("--start", help="Run or trained model to begin with, of this or of another network.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", help="Stop cleanly after so long; give the command again to go on.")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Train a method on a dataset; the best weights by validation accuracy are kept."""
    from tedtrajrec.training.choose import read_choice
    from tedtrajrec.training.curves import plot_curves
    from tedtrajrec.training.distributed import launched
    from tedtrajrec.training.lists import read_lists
    from tedtrajrec.training.train import train_method

    load_plugins(plugins)
    fitted = train_method(
        method,
        dataset,
        output,
        preset=preset,
        overrides=overrides or (),
        start=start,
        device=device,
        max_minutes=max_minutes,
        show_progress=True,
    )
    if not launched().is_first:
        return
    typer.echo(f"{output}: {fitted}")
    for choice in (read_lists(output), read_choice(output)):
        if choice is not None:
            typer.echo(str(choice))
    if fitted.epochs:
        typer.echo(str(plot_curves(output)))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run directory of 'train'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make; its name is the model's.")],
    dataset: Annotated[
        Path | None, typer.Option("--dataset", help="What it was trained on, to describe it and to check the weights.")
    ] = None,
    metrics: Annotated[
        list[Path] | None,
        typer.Option("--metrics", help="Folder that 'evaluate -o' wrote, or a file of such rows; repeat for more."),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Free text for the card.")] = "",
) -> None:
    """Write the weights of a run in half precision, with a model card."""
    from tedtrajrec.evaluation.export import export_model

    card = export_model(run, output, dataset=dataset, metrics=metrics or (), note=note)
    typer.echo(f"{output}: {card['parameters']:,} parameters, {card['bytes'] / 1e6:.1f} MB")
    half = card["half_precision"]
    if "same_segment" in half:
        typer.echo(f"{half['same_segment']:.3%} of the validation steps get the same segment as before")


@app.command("models")
def list_models() -> None:
    """List the trained models that come with tedtrajrec."""
    from tedtrajrec.methods.shipped import describe_models

    lines = [str(model) for model in describe_models()]
    typer.echo("\n".join(lines) or "This copy of tedtrajrec has none.")


@app.command()
def evaluate(
    method: Annotated[
        str, typer.Argument(help="Method, trained model or folder of a saved one; several with commas between.")
    ],
    dataset: DatasetPath,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Nominal share of observed steps; repeat for more (default: 1/8)."),
    ] = None,
    rule: Annotated[
        Literal["exact", "bernoulli", "uniform"], typer.Option("--rule", help="How observed steps are drawn.")
    ] = "exact",
    split: Annotated[Literal["train", "valid", "test"], typer.Option("--split", help="Trips to recover.")] = "test",
    seed: Seed = 0,
    overrides: Annotated[list[str] | None, one_setting("preset=nk09")] = None,
    decode: Annotated[
        Literal["feasible", "greedy"],
        typer.Option("--decode", help="The most likely trip that can be driven, or the method's own answer."),
    ] = "greedy",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for metrics.json and one row a trip.")
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="With -o, also write every recovered step and draw pictures.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Recover the trips of a dataset from some of their steps and print how well that went."""
    from tedtrajrec.evaluation.evaluate import evaluate_methods
    from tedtrajrec.evaluation.report import format_table

    load_plugins(plugins)
    evaluations = evaluate_methods(
        [name for name in method.split(",") if name],
        dataset,
        keep=keep or ["1/8"],
        rule=rule,
        split=split,
        seed=seed,
        overrides=overrides or (),
        decode=decode,
        output=output,
        keep_steps=steps,
    )
    typer.echo(format_table(evaluations))
