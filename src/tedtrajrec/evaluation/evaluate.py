"""Several methods on one dataset, from folder to folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from tedtrajrec.data.dataset import Dataset, SplitName
from tedtrajrec.data.sampling import Rule
from tedtrajrec.errors import ConfigError
from tedtrajrec.evaluation.calibration_plot import plot_confidence
from tedtrajrec.evaluation.plot import plot_evaluation
from tedtrajrec.evaluation.report import write_evaluation
from tedtrajrec.evaluation.run import Evaluation, draw_steps, evaluate_draw
from tedtrajrec.methods.base import Method
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import load_method, make_method, method_class, method_names
from tedtrajrec.training.loop import choose_device
from tedtrajrec.work import only_run

Decode = Literal["feasible", "greedy"]


def evaluate_methods(
    methods: Sequence[str],
    dataset: str | Path,
    *,
    keep: Sequence[str] = ("1/8",),
    rule: Rule = "exact",
    split: SplitName = "test",
    seed: int = 0,
    overrides: Iterable[str] = (),
    decode: Decode = "greedy",
    output: str | Path | None = None,
    keep_steps: bool = False,
) -> list[Evaluation]:
    """Evaluate methods on the trips of a dataset, all on the same draws.

    Parameters
    ----------
    methods
        Names of methods, which first learn what they need from the training trips, folders of saved ones, or names of
        the models that come with tedtrajrec.
    dataset
        Folder of a prepared dataset.
    keep, rule, split, seed
        See :func:`draw_steps`; one evaluation for each share.
    overrides
        Settings of the methods as ``key=value``; of saved ones those that can be changed after training.
    decode
        ``feasible``: the most likely trip that can be driven (:class:`Feasible`); ``greedy``: what the method answers.
    output
        Folder for a folder of each evaluation; see :func:`write_evaluation`.
    keep_steps
        Whether to keep the answer at every step, write it, and draw it; see :func:`plot_evaluation` and, for methods
        that give probabilities, :func:`plot_confidence`.
    """
    prepared = Dataset(dataset)
    settings = list(overrides)
    ready: list[Method[Any]] = []
    for name in methods:
        if name not in method_names():
            saved = load_method(name, prepared.network, settings)
            ready.append(saved.to(choose_device("auto")) if isinstance(saved, LearnedMethod) else saved)
            continue
        if issubclass(method_class(name), LearnedMethod):
            raise ConfigError(f"{name} must be trained first: tedtrajrec train {name} {dataset} -o runs/{name}")
        method = make_method(name, prepared.network, settings)
        method.precompute(prepared)
        ready.append(method)
    if decode == "feasible":
        ready = [method if method.drivable else Feasible(method) for method in ready]
    evaluations = []
    for share in keep:
        draw = draw_steps(prepared, keep=share, seed=seed, rule=rule, split=split)
        for method in ready:
            evaluation = evaluate_draw(method, draw, keep_steps=keep_steps, show_progress=True)
            if output is not None:
                folder = Path(output) / evaluation.name
                with only_run(folder):
                    write_evaluation(evaluation, folder)
                    if keep_steps:
                        plot_evaluation(evaluation, folder)
                        if evaluation.confidence:
                            plot_confidence(evaluation, folder / "confidence.png")
            evaluations.append(evaluation)
    return evaluations
