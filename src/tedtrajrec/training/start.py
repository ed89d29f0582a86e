"""What training begins with: weights of another run, and how many trips."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from tedtrajrec.config import to_dict
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import read_description
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import saved_folder
from tedtrajrec.training.config import TrainConfig


def start_from(method: LearnedMethod[Any, Any], saved: str | Path) -> None:
    """Give a method the weights of a saved one, which it then names as its start.

    Parameters
    ----------
    method
        With the settings to be trained with. What it has learned from past trips is replaced.
    saved
        A method of the same name, by folder or as for :func:`tedtrajrec.methods.registry.load_method`. It may be of
        another network: then what belongs to the segments of that one stays behind.
    """
    folder = saved_folder(saved)
    described = read_description(folder)
    try:
        method.take(folder)
    except InputError as error:
        there, here = described["config"], to_dict(method.config)
        other = [name for name in here if name in there and there[name] != here[name]]
        if described["method"] != method.name or not other:
            raise
        differ = ", ".join(f"{name} ({there[name]} there, {here[name]} here)" for name in other)
        raise ConfigError(
            f"The weights of {folder} do not fit these settings, which differ in {differ}. Give those of the start, "
            f"for example --set model.{other[0]}={there[other[0]]}."
        ) from error
    # Training makes the weights those of this network, and they are calibrated after it.
    method.origin = method.calibration = None
    method.start = {
        "run": folder.resolve().name,
        "network": described["network"],
        "weights": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:16],
        **({"start": described["start"]} if "start" in described else {}),
    }


def few_trips(dataset: Dataset, config: TrainConfig) -> Dataset:
    """Return the dataset with no more training trips than the settings allow: the first ones of a seeded order."""
    count = len(dataset.split("train"))
    if not 0 < config.most_train < count:
        return dataset
    order = np.random.default_rng((config.seed, 5)).permutation(count)
    return dataset.with_train(np.sort(order[: config.most_train]))
