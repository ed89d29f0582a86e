"""The methods by name; a new one is one file and one line here.

Methods from outside are added by :func:`tedtrajrec.methods.plugins.load_plugin`, or are entry points of an installed
package,

    [project.entry-points."tedtrajrec.methods"]
    toy = "toy_package.toy:Toy"

where the name is that of the class.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from tedtrajrec.config import load_config
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import Method, read_description
from tedtrajrec.methods.learned import LearnedMethod
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
    PLUGIN = "plug-in"


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


GROUP = "tedtrajrec.methods"
"""Of entry points that are methods."""

_added: dict[str, tuple[type[Method[Any]], Entry]] = {}  # methods from outside that were loaded


def method_names() -> tuple[str, ...]:
    """Return the names of all methods: those of the package, and those from outside."""
    return tuple(dict.fromkeys((*METHODS, *_added, *_installed())))


def method_class(name: str) -> type[Method[Any]]:
    """Return the class of a method."""
    if name in METHODS:
        module = importlib.import_module(f"tedtrajrec.methods.{name}")
        found: type[Method[Any]] = getattr(module, METHODS[name].class_name)
        return found
    return _from_outside(name)[0]


def method_entry(name: str) -> Entry:
    """Return what is known of a method; of one from outside it is told from its class."""
    return METHODS[name] if name in METHODS else _from_outside(name)[1]


def add_method(cls: type[Method[Any]], origin: str) -> None:
    """Make a method from outside known by its name.

    Parameters
    ----------
    cls
        Its class.
    origin
        Where it is from: the name of its file or package.

    Raises
    ------
    ConfigError
        If the name is that of another method, or not a plain word.
    """
    if not (isinstance(cls.name, str) and cls.name.isidentifier()):
        raise ConfigError(
            f"The method {cls.__name__} of {origin} is named {cls.name!r}; a name has letters, digits and _."
        )
    if cls.name in METHODS or cls.name in _added:
        raise ConfigError(f"There is another method named '{cls.name}' than that of {origin}.")
    if issubclass(cls, LearnedMethod):
        needs = Needs.TRAINING
    else:
        needs = Needs.NOTHING if cls.precompute is Method.precompute else Needs.PAST
    _added[cls.name] = cls, Entry(cls.__name__, Family.PLUGIN, needs, origin)


def _from_outside(name: str) -> tuple[type[Method[Any]], Entry]:
    if name not in _added and name in _installed():
        point = _installed()[name]
        package = point.dist.name if point.dist is not None else point.module
        try:
            cls = point.load()
        except Exception as error:  # it may fail in any way
            raise ConfigError(f"Method '{name}' of package {package} cannot be loaded ({error}).") from error
        if not (inspect.isclass(cls) and issubclass(cls, Method) and getattr(cls, "name", None) == name):
            raise ConfigError(f"Entry point '{name}' of package {package} is not a method of that name.")
        add_method(cls, package)
    if name not in _added:
        raise ConfigError(
            f"There is no method '{name}'. Known: {', '.join(method_names())}. One in a file comes with --plugin FILE."
        )
    return _added[name]


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the methods of installed packages, not loaded yet; names of ours are ours."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in METHODS}


def make_method(name: str, network: RoadNetwork, overrides: Iterable[str] = ()) -> Method[Any]:
    """Return a new method with its default settings and the given ``key=value`` overrides."""
    cls = method_class(name)
    return cls(network, load_config(cls.Config, None, overrides))


def load_method(saved: str | Path, network: RoadNetwork, overrides: Iterable[str] = ()) -> Method[Any]:
    """Return a saved method; its ``note`` says so where the network is not the one it was made for.

    Parameters
    ----------
    saved
        Its folder, or the name of a model that comes with tedtrajrec.
    network
        The one it was made for, or another one if the method can do without what it knows of that
        (:meth:`Method.take`).
    overrides
        Settings as ``key=value`` that can be changed after training.
    """
    folder = saved_folder(saved)
    return method_class(read_description(folder)["method"]).load(folder, network, overrides)


def saved_folder(saved: str | Path) -> Path:
    """Return the folder of a saved method; a folder of one's own goes before a model of the same name."""
    folder, models = Path(saved), shipped_models()
    if (folder / "config.json").exists() or (folder.is_dir() and str(saved) not in models):
        return folder
    if str(saved) not in models:
        raise InputError(
            f"there is no saved method or trained model '{saved}'",
            remedy=f"Give a folder that 'train' or 'export' wrote, one of the trained models "
            f"({', '.join(models) or 'this copy has none'}), or a method ({', '.join(method_names())}).",
        )
    return models[str(saved)]


def describe_method(name: str) -> str:
    """Return the first line of the documentation of a method."""
    return (inspect.getdoc(method_class(name)) or "").split("\n")[0]


def documented(name: str) -> str:
    """Return where a method is documented, in the repository."""
    return f"docs/methods.md#{name}" if name in METHODS else "not documented here"
