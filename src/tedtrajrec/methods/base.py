"""The contract of a method: from sparse fixes to positions at every step."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from torch import Tensor

from tedtrajrec.config import from_dict, load_config, to_dict
from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file, read_json, replacing
from tedtrajrec.methods.shipped import network_of
from tedtrajrec.network.roadnet import RoadNetwork

Settings = TypeVar("Settings")
Arrays = dict[str, NDArray[Any]]


class Recovered(NamedTuple):
    """Positions at the steps of a batch; what lies in the padding has no meaning."""

    segment: Tensor  # [B, n] int64; -1 where the method has no answer
    ratio: Tensor  # [B, n] float32, 0..1
    log_prob: Tensor  # [B, n] float32, of the segment; NaN where the method gives none


class Choices(NamedTuple):
    """Up to K likely positions at the steps of a batch, the likeliest first; the padding has no meaning."""

    segment: Tensor  # [B, n, K] int64, all different at a step; -1 where there are fewer
    ratio: Tensor  # [B, n, K] float32, 0..1
    log_prob: Tensor  # [B, n, K] float32, of the segment; NaN where the method gives none


class Origin(NamedTuple):
    """The network that a method learned on, where that is another one."""

    network: str  # its hash
    segments: int


@dataclass(frozen=True)
class NoConfig:
    """The settings of a method that has none."""


class Method(ABC, Generic[Settings]):
    """A way to recover trips on one road network.

    Parameters
    ----------
    network
        The road network of the trips.
    config
        Its settings; the defaults of :attr:`Config` if not given.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]] = NoConfig
    PRESETS: ClassVar[dict[str, Any]] = {}
    """Settings by name: ``paper`` is what its paper says, ``authors`` what the code of its authors does, ``default``
    (those of the class) what wins on validation."""
    ADJUSTABLE: ClassVar[frozenset[str]] = frozenset()
    """Settings that can be changed after training: they do not touch what was learned."""
    decoding = "own"
    """How answers are found: the method's own way, or what was asked for instead."""
    answers_fixes: ClassVar[bool] = False
    """Whether the answer at an observed step is where the vehicle was at the fix, not at the step, where a fix lies
    between two steps."""

    def __init__(self, network: RoadNetwork, config: Settings | None = None) -> None:
        self.network = network
        self.config: Settings = self.Config() if config is None else config
        self.origin: Origin | None = None
        self.start: Mapping[str, Any] | None = None  # what its training began from, if not from nothing

    @property
    def note(self) -> str:
        """What a user should know of the answers, in a sentence; mostly nothing."""
        return ""

    @property
    def drivable(self) -> bool:
        """Whether its answers are made to be driven, without :class:`~tedtrajrec.methods.feasible.Feasible`."""
        return False

    def precompute(self, dataset: Dataset) -> None:
        """Learn tables from the training trips of a dataset, and from nothing else of it."""

    @abstractmethod
    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step; a trip's result does not depend on the others of the batch."""

    def best(self, batch: Batch, k: int) -> Choices:  # noqa: ARG002  (subclasses use it)
        """Return up to k likely positions of every step, that of :meth:`recover` first; without more, that alone."""
        return Choices(*(part[..., None] for part in self.recover(batch)))

    def state(self) -> Arrays:
        """Return all that :meth:`precompute` learned."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        if state:
            raise ValueError(f"{self.name} has no state")

    def adopt(self, state: Arrays, network: str) -> None:
        """Take over what holds here of the state on another network; most methods know segments, and cannot.

        Parameters
        ----------
        state
            What :meth:`state` returned there.
        network
            Hash of that network.
        """
        raise NotImplementedError(f"{self.name} cannot be taken from network {network} to {self.network.hash}")

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` to a folder."""
        folder = Path(folder)
        with replacing(folder / "model.safetensors") as path:
            # Not save_file: its errors do not say that the disk is full, and it makes files private to their owner.
            path.write_bytes(save({name: np.ascontiguousarray(array) for name, array in self.state().items()}))
        described = {"method": self.name, "network": self.network.hash, "config": to_dict(self.config)}
        if self.origin is not None:
            described["origin"] = self.origin._asdict()
        if self.start is not None:
            described["start"] = dict(self.start)
        with replacing(folder / "config.json") as path:
            path.write_text(json.dumps(described, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: str | Path, network: RoadNetwork, overrides: Iterable[str] = ()) -> Self:
        """Read what :meth:`save` wrote; see :meth:`take`. Overrides are of settings in ``ADJUSTABLE``."""
        config = from_dict(cls.Config, read_description(folder)["config"])
        changes = list(overrides)
        for key in (change.partition("=")[0].strip() for change in changes):
            if key not in cls.ADJUSTABLE:
                known = ", ".join(sorted(cls.ADJUSTABLE)) or "none"
                raise ConfigError(f"'{key}' cannot be set for a saved {cls.name}; what can: {known}.")
        if changes:
            config = load_config(cls.Config, None, changes, base=config)
        try:
            method = cls(network, config)
        except (RuntimeError, MemoryError) as error:  # of torch, which cannot make layers of any size
            raise InputError(
                f"{cls.name} cannot be made with these settings ({str(error).splitlines()[0]})",
                file=Path(folder) / "config.json",
            ) from error
        method.take(folder)
        return method

    def take(self, folder: str | Path) -> None:
        """Take over what :meth:`save` wrote, on this network or, where the method can do that, on another one."""
        described = read_description(folder)
        file = Path(folder) / "config.json"
        if described["method"] != self.name:
            raise InputError(f"this is {described['method']}, not {self.name}", file=file)
        here = described["network"] == self.network.hash
        if not here and type(self).adopt is Method.adopt:
            raise InputError(
                f"this was made for network {described['network']}, not for {self.network.hash}, and what {self.name} "
                "learns holds for the segments of one network only",
                file=file,
                remedy=f"Use {network_of(folder)}, or let {self.name} learn from trips on this one.",
            )
        weights = existing_file(Path(folder) / "model.safetensors", "the tables of a method")
        try:
            state = load_file(weights)
            if here:
                self.restore(state)
            else:
                self.adopt(state, described["network"])
            if "origin" in described:
                self.origin = Origin(**described["origin"])
        except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
            raise InputError(f"this does not hold the tables of {self.name} ({error})", file=weights) from error
        self.start = described.get("start")


def read_description(folder: str | Path) -> dict[str, Any]:
    """Return what ``config.json`` of a saved method says: method, network and config."""
    file = Path(folder) / "config.json"
    described: dict[str, Any] = read_json(file, "the description of a saved method")
    for name, kind in (("method", str), ("network", str), ("config", dict)):
        if not (isinstance(described, dict) and isinstance(described.get(name), kind)):
            raise InputError(f"this does not describe a saved method: {name} is missing or of another type", file=file)
    return described


def as_recovered(
    batch: Batch, segment: NDArray[np.int32], ratio: NDArray[np.float64], log_prob: NDArray[np.float64] | None = None
) -> Recovered:
    """Return ragged positions, one for each real step of a batch in order [N] or several [N, K], as padded tensors."""
    mask = batch.step_mask.cpu()

    def pad(values: NDArray[Any], dtype: torch.dtype, fill: float) -> Tensor:
        out = torch.full((*mask.shape, *values.shape[1:]), fill, dtype=dtype)
        out[mask] = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
        return out

    chance = np.full(segment.shape, np.nan) if log_prob is None else log_prob
    answer = np.where(segment >= 0, ratio, 0.0)
    return Recovered(pad(segment, torch.int64, -1), pad(answer, torch.float32, 0), pad(chance, torch.float32, np.nan))


def part_of(state: Arrays, begin: str) -> Arrays:
    """Return the arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(begin): array for name, array in state.items() if name.startswith(begin)}
