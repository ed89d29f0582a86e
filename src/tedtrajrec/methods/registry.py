"""The methods by name; a new one is one file and one line here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tedtrajrec.config import load_config
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import Method, read_description
from tedtrajrec.methods.shipped import shipped_models
from tedtrajrec.network.roadnet import RoadNetwork

METHODS = {
    "linear_hmm": "LinearHmm",
    "trimpute_hmm": "TrImputeHmm",
    "dhtr_hmm": "DhtrHmm",
    "teri_hmm": "TeriHmm",
    "route_hmm": "RouteHmm",
    "lookup": "Lookup",
    "mtrajrec": "MTrajRec",
    "rntrajrec": "RNTrajRec",
    "mm_stged": "MmStged",
    "neutraj": "NeuTraj",
    "trajformer": "TrajFormer",
    "gts": "Gts",
    "trajgat": "TrajGat",
    "start": "Start",
    "jgrm": "Jgrm",
    "mask_transformer": "MaskTransformer",
    "trmma": "Trmma",
    "tedtrajrec": "TedTrajRec",
    "tedtrajrec_parallel": "TedTrajRecParallel",
}
"""Name of the method, which is also its module here, and of its class. A module loads when it is first used."""


def method_class(name: str) -> type[Method[Any]]:
    """Return the class of a method."""
    if name not in METHODS:
        raise ConfigError(f"There is no method '{name}'. Known: {', '.join(METHODS)}.")
    found: type[Method[Any]] = getattr(importlib.import_module(f"tedtrajrec.methods.{name}"), METHODS[name])
    return found


def make_method(name: str, network: RoadNetwork, overrides: Iterable[str] = ()) -> Method[Any]:
    """Return a new method with its default settings and the given ``key=value`` overrides."""
    cls = method_class(name)
    return cls(network, load_config(cls.Config, None, overrides))


def load_method(saved: str | Path, network: RoadNetwork) -> Method[Any]:
    """Return a saved method; its ``note`` says so where the network is not the one it was made for.

    Parameters
    ----------
    saved
        Its folder, or the name of a model that comes with tedtrajrec.
    network
        The one it was made for, or another one if the method can do without what it knows of that
        (:meth:`Method.take`).
    """
    folder = saved_folder(saved)
    return method_class(read_description(folder)["method"]).load(folder, network)


def saved_folder(saved: str | Path) -> Path:
    """Return the folder of a saved method; a folder of one's own goes before a model of the same name."""
    folder, models = Path(saved), shipped_models()
    if (folder / "config.json").exists() or (folder.is_dir() and str(saved) not in models):
        return folder
    if str(saved) not in models:
        raise InputError(
            f"there is no saved method or trained model '{saved}'",
            remedy=f"Give a folder that 'train' or 'export' wrote, one of the trained models "
            f"({', '.join(models) or 'this copy has none'}), or a method ({', '.join(METHODS)}).",
        )
    return models[str(saved)]


def describe_methods() -> dict[str, str]:
    """Return the first line of the documentation of every method."""
    return {name: (inspect.getdoc(method_class(name)) or "").split("\n")[0] for name in METHODS}
