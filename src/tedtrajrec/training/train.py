"""From the name of a method and a dataset to a run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from tedtrajrec.config import load_config
from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import Method
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import Needs, method_class, method_entry
from tedtrajrec.methods.searches import Search
from tedtrajrec.progress import progress
from tedtrajrec.training.calibrate import calibrate_run
from tedtrajrec.training.choose import MOST_DRAWS, MOST_TRIPS, choose_run
from tedtrajrec.training.config import PRESETS, TrainConfig
from tedtrajrec.training.distributed import joined, launched
from tedtrajrec.training.lists import MOST_TRIPS as MOST_LISTED
from tedtrajrec.training.lists import Listing, choose_lists
from tedtrajrec.training.loop import Fitted, choose_device, fit, is_begun, validation_batches
from tedtrajrec.training.profile import PROFILE, write_profile
from tedtrajrec.training.start import few_trips, start_from
from tedtrajrec.work import only_run

NARROW = 128  # width up to which a model trains no faster with all processors


def train_method(
    name: str,
    dataset: str | Path | Dataset,
    run: str | Path,
    *,
    preset: str = "default",
    overrides: Iterable[str] = (),
    start: str | Path | None = None,
    choose: bool = True,
    device: str = "auto",
    max_minutes: float | None = None,
    show_progress: bool = False,
) -> Fitted:
    """Train a method; validation trips tell how long its lists are, how to search and what probabilities are worth.

    The same call goes on with a stopped run.

    A method that learns from past trips without training does so, and is then saved as a run like any other.

    Started by ``torchrun``, the processes train together: each takes its share of every batch, and the first one
    writes. Dataset and run directory must be the same files for all.

    Parameters
    ----------
    name
        A method of the registry that learns.
    dataset
        A prepared dataset or its folder.
    run
        The run directory; see :func:`fit`.
    preset
        ``default``, ``paper``, or ``authors`` for methods that have settings of their own authors.
    overrides
        Settings such as ``model.d=128`` or ``train.epochs=20``.
    start
        A saved method whose weights training begins with; see :func:`start_from`.
    choose
        Whether a method is given what suits the validation trips best: the length of its lists of candidates
        (:func:`choose_lists`) and the search for drivable trips (:func:`choose_run`). What the overrides have a setting
        of is taken as given anyway.
    device, max_minutes, show_progress
        As for :func:`fit`.
    """
    cls = method_class(name)
    if method_entry(name).needs is Needs.NOTHING:
        raise ConfigError(f"{name} learns nothing, so that there is nothing to train: give its name in place of a run.")
    if preset not in PRESETS:
        raise ConfigError(f"There is no preset '{preset}'. Known: {', '.join(PRESETS)}.")
    if preset == "authors" and preset not in cls.PRESETS:
        raise ConfigError(f"{name} has no settings of its own authors; use --preset paper.")
    prepared = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    model, train = _split(overrides)
    settings = load_config(TrainConfig, None, train, base=PRESETS[preset])
    torch.manual_seed(settings.seed)
    method = cls(prepared.network, load_config(cls.Config, None, model, base=cls.PRESETS.get(preset)))
    if not isinstance(method, LearnedMethod):
        if start is not None:
            raise ConfigError(f"{name} has no weights, so that it cannot start from those of {start}.")
        return _learn(method, few_trips(prepared, settings), run, settings)
    if start is not None:
        start_from(method, start)
    prepared = few_trips(prepared, settings)
    first = launched().is_first  # of the processes of torchrun, which share the folder
    given = {text.partition("=")[0].strip() for text in model}
    with only_run(run if first else None):
        method.precompute(prepared)
        if choose and isinstance(method, Listing) and "most" not in given:
            choose_lists(method, run, _few_validation_batches(prepared, settings, MOST_LISTED), write=first)
        # Before it begins, so that a run that is killed can be used and exported.
        if first and len(prepared.split("train")) and not is_begun(run):
            write_profile(run, prepared, settings.keep, settings.rule)
        with _threads_for(method.config.d), joined(choose_device(device)) as ranks:
            fitted = fit(
                method,
                prepared,
                run,
                settings,
                device=device,
                max_minutes=max_minutes,
                show_progress=show_progress,
                ranks=ranks,
            )
        if first and not (Path(run) / PROFILE).is_file():  # a run of before
            write_profile(run, prepared, settings.keep, settings.rule)
        if first and fitted.finished:
            if choose and not given & set(Search._fields):
                batches = _few_validation_batches(prepared, settings, MOST_TRIPS, draws=MOST_DRAWS)
                if show_progress:
                    batches = progress(batches, "choose a search", unit=" batches")
                choose_run(method, run, batches, prepared)
            calibrate_run(method, run, validation_batches(prepared, settings, settings.keep))
    return fitted


def _few_validation_batches(dataset: Dataset, settings: TrainConfig, most: int, *, draws: int = 1) -> Iterator[Batch]:
    """Yield batches of so many validation trips at most, all shares of training together.

    Where there are fewer, each is drawn again, up to so many times.
    """
    few = min(settings.most_valid, max(1, most // len(settings.keep)))
    once = max(1, min(few, len(dataset.split("valid"))) * len(settings.keep))
    draws = max(1, min(draws, most // once))
    return validation_batches(dataset, dataclasses.replace(settings, most_valid=few), settings.keep, draws=draws)


def _learn(method: Method[Any], dataset: Dataset, run: str | Path, settings: TrainConfig) -> Fitted:
    """Have a method without weights learn from the training trips, and write it as a run; one process is enough."""
    started = time.monotonic()
    if len(dataset.split("train")) == 0:
        raise InputError("the dataset has no training trips", file=dataset.path)
    if launched().is_first:
        with only_run(run):
            method.precompute(dataset)
            method.save(run)
            write_profile(run, dataset, settings.keep, settings.rule)
    return Fitted(epochs=0, best_epoch=0, best_accuracy=math.nan, finished=True, seconds=time.monotonic() - started)


@contextlib.contextmanager
def _threads_for(d: int) -> Iterator[None]:
    """Keep one processor free for the thread that makes batches, where the layers of a model are narrow.

    The threads of torch wait for each other after each operation, and so for the one whose processor is taken. That
    costs narrow models more than it brings: on 2 processors d 64 is 1.4 times as fast with one thread, d 256 with two.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if d > NARROW else max(1, min(threads, (os.cpu_count() or 1) - 1)))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _split(overrides: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the settings of the model and those of training."""
    parts: dict[str, list[str]] = {"model": [], "train": []}
    for override in overrides:
        part, _, rest = override.partition(".")
        if part not in parts or not rest:
            raise ConfigError(f"Setting '{override}' must start with model. or train., for example model.d=128.")
        parts[part].append(rest)
    return parts["model"], parts["train"]
