"""The training loop: epochs over a prepared dataset, the best weights by validation, and a state to go on from."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from tedtrajrec.config import completed, to_dict
from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import read_json, replacing
from tedtrajrec.methods.learned import I, LearnedMethod
from tedtrajrec.training.batches import ahead, epoch_order, makers, training_batch
from tedtrajrec.training.checkpoint import Progress, load_checkpoint, remove_leftovers, save_checkpoint
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks
from tedtrajrec.training.memory import give_back
from tedtrajrec.training.trainer import Trainer

SETTINGS = "train.json"
CHECKPOINT_S = 60.0  # seconds between states within an epoch
TIDY_S = 15.0  # and between those at which memory is given back
VALID_TRIPS = 512  # of one validation batch


@dataclass(frozen=True)
class Fitted:
    """How a run ended."""

    epochs: int  # done
    best_epoch: int
    best_accuracy: float  # on validation trips; NaN where there are none
    finished: bool  # False where time was up; the same call goes on
    seconds: float  # of this call

    def __str__(self) -> str:
        if self.finished and not self.epochs:
            return f"learned from past trips in {self.seconds:.0f} s; there is nothing to train"
        state = "finished" if self.finished else "stopped in time, to be gone on with"
        best = f"best validation accuracy {self.best_accuracy:.4f} after epoch {self.best_epoch + 1}"
        if math.isnan(self.best_accuracy):
            best = "no validation trips, so the weights are those of the last epoch and no probability is calibrated"
        return f"{self.epochs} epochs in {self.seconds:.0f} s, {state}; {best}"


def fit(
    method: LearnedMethod[Any, I],
    dataset: Dataset,
    run: str | Path,
    config: TrainConfig | None = None,
    *,
    device: str = "auto",
    max_minutes: float | None = None,
    show_progress: bool = False,
    ranks: Ranks = ALONE,
) -> Fitted:
    """Train a method and leave its best weights in a run directory.

    The directory holds ``config.json`` and ``model.safetensors`` (the best weights by validation accuracy),
    ``metrics.jsonl`` (a row for each epoch), ``train.json`` (the settings) and ``last/`` (the state to go on from). A
    run that was stopped or killed goes on where it was when called again; on the CPU it ends with the same weights, bit
    for bit, as one that was not.

    Parameters
    ----------
    method
        The method, with fresh weights made under the seed of the settings.
    dataset
        A prepared dataset, of no more training trips than the settings allow (:func:`few_trips`).
    run
        The run directory.
    config
        Settings of training.
    device
        ``cpu``, ``cuda`` or ``auto``: CUDA where there is one.
    max_minutes
        Stop cleanly after so long; the same call goes on.
    show_progress
        Whether to show a bar.
    ranks
        The processes that train together, each of which makes this call; the run directory is the same for all. How
        many they are may change when a run goes on.
    """
    started = time.monotonic()
    config = config or TrainConfig()
    folder = Path(run)
    split = dataset.split("train")
    if len(split) == 0:
        raise InputError("the dataset has no training trips", file=dataset.path)
    if 0 < config.most_train < len(split):
        raise ValueError(f"the dataset has {len(split)} training trips: take a part of it with few_trips")
    _same_settings(folder / SETTINGS, _describe(method, dataset, config), type(method).Config, ranks)
    method.to(choose_device(device))
    if method.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32: products three times faster, and no worse to train with
    trainer = Trainer(method, config, math.ceil(len(split) / config.batch), ranks)
    if ranks.is_first:
        remove_leftovers(folder)
    progress = load_checkpoint(folder, method, trainer.optimizer) or Progress()
    ranks.copy_first(method.state_dict().values())  # what was learned before may differ in the last bit
    batches_of_all = validation_batches(dataset, config, config.keep[:1])
    valid = list(itertools.islice(batches_of_all, ranks.rank, None, ranks.count))
    deadline = math.inf if max_minutes is None else started + 60 * max_minutes
    saved = tidied = time.monotonic()
    while progress.epoch < config.epochs and not progress.finished:
        method.train()
        began = time.monotonic()
        order = epoch_order(split.lengths, config.batch, config.seed, progress.epoch)

        def make(k: int, order: list[NDArray[np.int64]] = order, epoch: int = progress.epoch) -> I:
            batch, forced = training_batch(dataset, split, order[k], config, epoch, ranks)
            return trainer.shape(method.inputs(batch, forced))

        if not trainer.prepared:
            trainer.prepare(make(largest(order, split.lengths)))
        with (
            contextlib.closing(ahead(make, range(progress.step, len(order)), makers())) as batches,
            tqdm(
                batches,
                desc=f"epoch {progress.epoch + 1}/{config.epochs}",
                initial=progress.step,
                total=len(order),
                disable=not (show_progress and ranks.is_first and sys.stderr.isatty()),
                leave=False,
            ) as bar,
        ):
            for inputs in bar:
                losses = trainer(inputs, progress)
                progress.step += 1
                if progress.step % 10 == 0 and not bar.disable:
                    bar.set_postfix(loss=f"{float(losses.total):.3f}", best=f"{progress.best:.3f}")
                now = time.monotonic()
                if now - tidied > TIDY_S:
                    give_back()
                    tidied = now
                late = max_minutes is not None and ranks.first_says(now > deadline)
                if late or now - saved > CHECKPOINT_S:
                    trainer.settle(progress)
                    if ranks.is_first:
                        save_checkpoint(folder, method, trainer.optimizer, progress)
                    saved = now
                    if late:
                        return _fitted(progress, started, dataset)
        trainer.settle(progress)
        trainer.catch_up()
        ranks.copy_first(method.state_dict().values())  # weights are equal, but running means are of each rank's trips
        accuracy = validate(method, valid, ranks)
        # Without validation trips the last weights are kept.
        better = accuracy > progress.best or not len(dataset.split("valid"))
        _end_epoch(progress, config, accuracy, better, trainer.rate(progress, -1), time.monotonic() - began)
        if ranks.is_first:
            if better:
                method.save(folder)
            _write_history(folder, progress)
            save_checkpoint(folder, method, trainer.optimizer, progress)
        give_back()
        saved = tidied = time.monotonic()
        if ranks.first_says(saved > deadline):
            break
    progress.finished = progress.finished or progress.epoch >= config.epochs
    return _fitted(progress, started, dataset)


def choose_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?", name):
        raise ConfigError(f"There is no device '{name}'; use cpu, cuda or auto.")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("This machine has no CUDA device; use --device cpu or auto.")
    # Graphs are recorded, and kernels launched, on the current device.
    if device.type == "cuda" and device.index not in {None, torch.cuda.current_device()}:
        raise ConfigError(
            f"'{name}' is not the current device. Use --device cuda with CUDA_VISIBLE_DEVICES={device.index}, "
            "so that this one alone is seen."
        )
    return device


@torch.no_grad()  # not inference_mode: what the method keeps for later calls must serve outside of it too
def validate(method: LearnedMethod[Any, Any], batches: list[Batch], ranks: Ranks = ALONE) -> float:
    """Return the mean over trips of the share of steps of known truth on the true segment.

    Each rank is given every R-th of the batches; the result is the same as for one process, bit for bit.
    """
    method.eval()
    shares: list[Tensor] = []
    for batch in batches:
        recovered = method.recover(batch)
        known = batch.segment >= 0
        right = (recovered.segment.cpu() == batch.segment) & known
        count = known.sum(1)
        shares.append((right.sum(1) / count.clamp_min(1))[count > 0])
    shares = ranks.all_of(shares)
    values = torch.cat(shares) if shares else torch.zeros(0)
    return float(values.double().mean()) if len(values) else 0.0


def largest(order: list[NDArray[np.int64]], lengths: NDArray[np.int64]) -> int:
    """Return the batch of the most steps, padding included; each holds the numbers of trips of these lengths."""
    return int(np.argmax([len(which) * lengths[which].max() for which in order]))


def validation_batches(
    dataset: Dataset, config: TrainConfig, keeps: Iterable[str], *, draws: int = 1
) -> Iterator[Batch]:
    """Yield batches of the validation trips with so many fixed draws for each share that is kept.

    Those of a batch are of similar length, and the longest come first.
    """
    split = dataset.split("valid")
    chosen = np.random.default_rng((config.seed, 4)).permutation(len(split))[: config.most_valid]
    chosen = chosen[np.argsort(-split.lengths[chosen], kind="stable")]
    info = dataset.info
    for keep, seed in itertools.product(keeps, range(draws)):
        for first in range(0, len(chosen), VALID_TRIPS):
            trips = split.trips(chosen[first : first + VALID_TRIPS])
            observed = draw_observed(trips, keep, seed=seed, rule=config.rule)
            yield make_batch(trips, observed, dataset.network, step_s=info.step_s, time_zone=info.time_zone)


def _end_epoch(
    progress: Progress,
    config: TrainConfig,
    accuracy: float,
    better: bool,
    lr: float,
    seconds: float,
) -> None:
    means = {name: value / max(1, progress.step) for name, value in progress.sums.items()}
    if better:
        progress.best, progress.best_epoch = accuracy, progress.epoch
    progress.history.append(
        {
            "epoch": progress.epoch,
            **{f"loss_{name}": value for name, value in means.items()},
            "valid_accuracy": accuracy,
            "best": better,
            "lr": lr,
            "seconds": round(seconds, 1),
        }
    )
    progress.finished = 0 < config.patience <= progress.epoch - progress.best_epoch
    progress.epoch, progress.step, progress.sums = progress.epoch + 1, 0, {}


def _describe(method: LearnedMethod[Any, Any], dataset: Dataset, config: TrainConfig) -> dict[str, Any]:
    """Return all that the weights of a run depend on."""
    info = dataset.info
    return {
        "method": {"name": method.name, **to_dict(method.config)},
        "train": to_dict(config),
        **({} if method.start is None else {"start": dict(method.start)}),
        "dataset": {
            "network": info.network_hash,
            "source": info.source,
            "step_s": info.step_s,
            "time_zone": info.time_zone,
            "splits": {name: to_dict(split) for name, split in info.splits.items()},
        },
    }


def is_begun(run: str | Path) -> bool:
    """Return whether training in a run directory has begun, so that the settings of the run are fixed."""
    return (Path(run) / SETTINGS).exists()


def _same_settings(file: Path, settings: dict[str, Any], model: type[Any], ranks: Ranks) -> None:
    """Write the settings of a new run; refuse to go on with others.

    A run of before lacks settings that are new; it was made with what is their default.
    """
    text = json.dumps(settings, indent=2) + "\n"
    if file.exists():
        if _with_new_settings(file, model) != json.loads(text):
            raise ConfigError(
                f"{file.parent} holds a run with other settings or another dataset; "
                "give another folder, or the same settings and dataset."
            )
    elif ranks.is_first:
        with replacing(file) as path:
            path.write_text(text, "utf-8")


def _with_new_settings(file: Path, model: type[Any]) -> Any:  # noqa: ANN401  (whatever the file holds)
    """Return the settings of a run with those that it lacks, or as they are where they are not of this version."""
    said = read_json(file, "the settings of a training run")
    try:
        own = {key: value for key, value in said["method"].items() if key != "name"}
        method = {"name": said["method"]["name"], **completed(model, own)}
        return json.loads(json.dumps(said | {"method": method, "train": completed(TrainConfig, said["train"])}))
    except (ConfigError, KeyError, TypeError, AttributeError):
        return said


def _write_history(folder: Path, progress: Progress) -> None:
    with replacing(folder / "metrics.jsonl") as path:
        path.write_text("".join(json.dumps(row) + "\n" for row in progress.history), "utf-8")


def _fitted(progress: Progress, started: float, dataset: Dataset) -> Fitted:
    best = progress.best if len(dataset.split("valid")) else math.nan
    seconds = round(time.monotonic() - started, 1)
    return Fitted(progress.epoch, progress.best_epoch, best, progress.finished, seconds)
