"""The methods by name; a new one is one file and one line here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from tedtrajrec.config import load_config
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import Method, read_description
from tedtrajrec.methods.shipped import shipped_models
from tedtrajrec.network.roadnet import RoadNetwork


class Family(StrEnum):
    """Kinds of methods."""

    TWO_STAGE = "two-stage"
    SEARCH = "route search"
    MEMORY = "memory of past trips"
    ENCODER = "encoder + MTrajRec decoder"
    RECOVERY = "recovery model"
    OURS = "ours"


class Needs(StrEnum):
    """What a method must be given beside the map before it recovers trips."""

    NOTHING = "nothing"
    BETTER = "nothing; is better with past trips"
    PAST = "past trips"
    TRAINING = "training, best on a GPU"
    PRETRAINING = "training, best on a GPU; pre-training is a switch"

    @property
    def of_map_alone(self) -> bool:
        """Whether the map is enough."""
        return self in (Needs.NOTHING, Needs.BETTER)


class Entry(NamedTuple):
    """What is known of a method before its module is loaded."""

    class_name: str  # in the module that has the name of the method
    family: Family
    needs: Needs
    paper: str  # where it is from


METHODS = {
    "linear_hmm": Entry("LinearHmm", Family.TWO_STAGE, Needs.NOTHING, "in the TedTrajRec paper"),
    "trimpute_hmm": Entry("TrImputeHmm", Family.TWO_STAGE, Needs.PAST, "Elshrif et al., SIGSPATIAL 2022"),
    "dhtr_hmm": Entry("DhtrHmm", Family.TWO_STAGE, Needs.TRAINING, "Wang et al., TKDE 2021"),
    "teri_hmm": Entry("TeriHmm", Family.TWO_STAGE, Needs.TRAINING, "Chen et al., PVLDB 2023"),
    "route_hmm": Entry("RouteHmm", Family.SEARCH, Needs.BETTER, "this project"),
    "lookup": Entry("Lookup", Family.MEMORY, Needs.PAST, "this project"),
    "mtrajrec": Entry("MTrajRec", Family.RECOVERY, Needs.TRAINING, "Ren et al., KDD 2021"),
    "rntrajrec": Entry("RNTrajRec", Family.RECOVERY, Needs.TRAINING, "Chen et al., ICDE 2023"),
    "mm_stged": Entry("MmStged", Family.RECOVERY, Needs.TRAINING, "Wei et al., TKDE 2024"),
    "neutraj": Entry("NeuTraj", Family.ENCODER, Needs.TRAINING, "Yao et al., ICDE 2019"),
    "trajformer": Entry("TrajFormer", Family.ENCODER, Needs.TRAINING, "Liang et al., CIKM 2022"),
    "gts": Entry("Gts", Family.ENCODER, Needs.TRAINING, "Han et al., KDD 2021"),
    "trajgat": Entry("TrajGat", Family.ENCODER, Needs.TRAINING, "Yao et al., KDD 2022"),
    "start": Entry("Start", Family.ENCODER, Needs.PRETRAINING, "Jiang et al., ICDE 2023"),
    "jgrm": Entry("Jgrm", Family.ENCODER, Needs.PRETRAINING, "Ma et al., WWW 2024"),
    "mask_transformer": Entry("MaskTransformer", Family.RECOVERY, Needs.TRAINING, "PLMTrajRec, Wei et al., 2024"),
    "trmma": Entry("Trmma", Family.RECOVERY, Needs.TRAINING, "Tian et al., ICDE 2025"),
    "tedtrajrec": Entry("TedTrajRec", Family.RECOVERY, Needs.TRAINING, "the TedTrajRec paper"),
    "tedtrajrec_parallel": Entry("TedTrajRecParallel", Family.OURS, Needs.TRAINING, "this project"),
}
"""The methods by name, which is also that of the module here. A module loads when it is first used."""


def method_class(name: str) -> type[Method[Any]]:
    """Return the class of a method."""
    if name not in METHODS:
        raise ConfigError(f"There is no method '{name}'. Known: {', '.join(METHODS)}.")
    found: type[Method[Any]] = getattr(importlib.import_module(f"tedtrajrec.methods.{name}"), METHODS[name].class_name)
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


def describe_method(name: str) -> str:
    """Return the first line of the documentation of a method."""
    return (inspect.getdoc(method_class(name)) or "").split("\n")[0]


def documented(name: str) -> str:
    """Return where a method is documented, in the repository."""
    return f"docs/methods.md#{name}"
