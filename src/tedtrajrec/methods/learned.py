"""Learned methods: weights, how they see a batch, and what is kept and recorded between batches.

Methods that decode step by step are in :mod:`tedtrajrec.methods.stepwise`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Arrays, Choices, Method, Recovered
from tedtrajrec.methods.calibration import Calibration
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.decoder import Decoded
from tedtrajrec.nn.point_features import Nearby, pad_candidates
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.nn.roads import Roads

TABLE = "road_gnn.table"  # the name of weights with a row for each segment
CALIBRATION = "calibration."  # how names of its arrays begin in the state
MOST_LAYERS = 1000  # more are a mistake, or a file that means to do harm


@dataclass(frozen=True)
class LearnedConfig:
    """Settings of all learned methods."""

    d: int = 256  # width
    dropout: float = 0.1
    most_candidates: int = 32  # segments looked at around a fix, the nearest ones
    eta_m: float = 400.0  # within this distance
    mask_radius_m: float = 100.0  # of the constraint mask
    mask_beta_m: float = 15.0
    mask_floor: float = 1e-6
    ratio_weight: float = 1.0  # lambda: weight of the squared error of the ratio
    smoothing: float = 0.0  # of the labels

    def __post_init__(self) -> None:
        self.check_positive("d", "most_candidates", "eta_m", "mask_radius_m", "mask_beta_m")
        if not (0 <= self.dropout < 1 and 0 <= self.smoothing < 1 and self.ratio_weight >= 0):
            raise ValueError("dropout and smoothing must be 0 to 1, ratio_weight at least 0")
        if not 0 < self.mask_floor <= 1:
            raise ValueError("mask_floor must be above 0 and at most 1")
        for field in dataclasses.fields(self):
            if field.name.endswith("layers") and getattr(self, field.name) > MOST_LAYERS:
                raise ValueError(f"{field.name} must be at most {MOST_LAYERS}")

    def check_positive(self, *names: str) -> None:
        """Refuse settings of these names that are not above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")

    def check_heads(self, heads: int) -> None:
        """Refuse a number of heads among which the width cannot be divided."""
        if self.d % heads:
            raise ValueError(f"{heads} heads do not divide a width d of {self.d}")


Settings = TypeVar("Settings", bound=LearnedConfig)
O = TypeVar("O", bound=tuple[Tensor, ...])  # noqa: E741  (outputs, with trips and steps first)


class BatchTensors(Protocol):
    """A batch as a method sees it: a named tuple of tensors of fixed shape that travel to the device together."""

    @property
    def step_mask(self) -> Tensor:
        """Real steps [B, n]."""

    def __iter__(self) -> Iterator[Tensor]:
        """Return the tensors."""

    def to(self, device: torch.device) -> Self:
        """Return the tensors on a device."""

    def pin(self) -> Self:
        """Return the tensors in memory that can be copied to a device while other work goes on."""

    def rounded(self) -> Self:
        """Return the batch with more padding, so that few shapes occur."""


I = TypeVar("I", bound=BatchTensors)  # noqa: E741  (inputs)
T = TypeVar("T", bound=BatchTensors)


class Inputs(NamedTuple):
    """Fixes with the segments around them, and steps; methods may need more beside it."""

    near_segment: Tensor  # [B, m, K] int64
    near_distance: Tensor  # [B, m, K] metres; infinite for padding
    near_ratio: Tensor  # [B, m, K]
    fix_mask: Tensor  # [B, m] bool
    fix_xy: Tensor  # [B, m, 2] from the middle of the network, half its extent is 1
    fix_time: Tensor  # [B, m] in steps
    fix_minute: Tensor  # [B, m] local minute of day
    fix_step: Tensor  # [B, m] int64
    step_mask: Tensor  # [B, n] bool
    step_minute: Tensor  # [B, n] local minute of day
    segment: Tensor  # [B, n] int64, the truth; -1 for unknown and padding
    ratio: Tensor  # [B, n]
    forced: Tensor  # [B, n] bool, steps whose truth is fed to the next one in training

    def to(self, device: torch.device) -> Inputs:
        """Return the tensors on a device."""
        return Inputs(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> Inputs:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return Inputs(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 4, steps: int = 8) -> Inputs:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        more = {True: -self.fix_mask.shape[1] % fixes, False: -self.step_mask.shape[1] % steps}
        fill = {"near_distance": torch.inf, "segment": -1}
        padded = {}
        for name, value in self._asdict().items():
            shape = (value.shape[0], more[name.startswith(("near", "fix"))], *value.shape[2:])
            padded[name] = torch.cat([value, value.new_full(shape, fill.get(name, 0))], dim=1)
        return Inputs(**padded)

    @property
    def nearby(self) -> Nearby:
        """The segments around the fixes."""
        return Nearby(self.near_segment, self.near_distance, self.near_ratio)


class Losses(NamedTuple):
    """What training makes small; means over the steps of known truth."""

    total: Tensor
    segment: Tensor
    ratio: Tensor
    known: Tensor  # how many steps that are


class LearnedMethod(Method[Settings], nn.Module, Generic[Settings, I]):
    """A method with weights, which sees a batch as tensors ``I``.

    Parameters
    ----------
    network, config
        As for :class:`Method`.
    """

    answers_fixes: ClassVar[bool] = True

    def __init__(self, network: RoadNetwork, config: Settings | None = None) -> None:
        nn.Module.__init__(self)
        Method.__init__(self, network, config)
        x, y = network.geom_xy
        self._middle = torch.tensor([(x.min() + x.max()) / 2, (y.min() + y.max()) / 2], dtype=torch.float32)
        self._extent = float(max(np.ptp(x), np.ptp(y))) / 2
        self.calibration: Calibration | None = None  # of the probabilities of answers; None: as they come
        # What is kept for use between batches. Recorded graphs read it and the weights, so both must stay in place.
        self._roads: Roads | None = None
        self._stale = False  # whether weights may have changed since
        self._graphs: dict[Hashable, Recorded[Any, Any]] = {}
        self._places: list[int] = []  # of the weights

    def see_places_as_on(self, network: RoadNetwork) -> None:
        """Have places measured as on an older version of the network, which the weights were trained on."""
        x, y = network.geom_xy
        middle = network.plane.to_lonlat((x.min() + x.max()) / 2, (y.min() + y.max()) / 2)
        self._middle = torch.tensor(self.network.plane.to_xy(*middle), dtype=torch.float32)
        self._extent = float(max(np.ptp(x), np.ptp(y))) / 2

    @abstractmethod
    def roads(self) -> Roads:
        """Return the representation of the road network."""

    @abstractmethod
    def inputs(self, batch: Batch, forced: Tensor | None = None) -> I:
        """Return a batch as this method sees it.

        Parameters
        ----------
        batch
            The trips.
        forced
            In training, the steps whose truth is fed to the next one [B, n]; None in use.
        """

    @abstractmethod
    def loss(self, inputs: I) -> Losses:
        """Return the losses of a batch."""

    @cached_property
    def finder(self) -> CandidateFinder:
        """The search of segments around fixes."""
        return CandidateFinder(self.network)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def plain_inputs(self, batch: Batch, forced: Tensor | None = None) -> Inputs:
        """Return what all methods see of a batch, on the batch's device; parameters as for :meth:`inputs`.

        Candidates of the fixes are searched where the batch has none, or not far enough.
        """
        config = self.config
        shape = cast("tuple[int, int]", tuple(batch.fix_mask.shape))
        candidates = batch.candidates
        if candidates is None or candidates.radius_m < config.eta_m:
            candidates = batch.search(self.finder, self.network, config.eta_m, config.most_candidates)
        nearby = pad_candidates(candidates, shape, config.most_candidates)
        middle = self._middle.to(batch.fix_xy.device)
        known = batch.segment >= 0
        return Inputs(
            near_segment=nearby.segment,
            near_distance=nearby.distance_m,
            near_ratio=nearby.ratio,
            fix_mask=batch.fix_mask,
            fix_xy=(batch.fix_xy - middle) / self._extent * batch.fix_mask[..., None],
            fix_time=batch.fix_time / batch.step_s,
            fix_minute=batch.fix_minute,
            fix_step=batch.fix_step,
            step_mask=batch.step_mask,
            step_minute=batch.step_minute,
            segment=batch.segment,
            ratio=batch.ratio,
            forced=torch.zeros_like(known) if forced is None else forced & known,
        )

    def _kept_roads(self) -> Roads:
        """Return the road part for use, made anew where weights may have changed."""
        if self._roads is None or self._stale:
            with torch.inference_mode(mode=False), torch.no_grad():  # so that it can be overwritten in any mode
                roads = self.roads()
                if self._roads is None:
                    self._roads = roads
                for old, new in zip(self._roads, roads, strict=True):
                    if old is not None and new is not None and old is not new:  # weights themselves are up to date
                        old.copy_(new)
            self._stale = False
        return self._roads

    def _calibrated(self, batch: Batch, answer: Recovered) -> Recovered:
        """Return the answer with probabilities as validation trips call for."""
        if self.calibration is None:
            return answer
        observed = batch.observed.to(answer.log_prob.device)
        return answer._replace(log_prob=self.calibration.tensor(answer.log_prob.exp(), observed).log())

    @torch.no_grad()
    def _played(self, name: Hashable, function: Callable[[I], O], batch: Batch) -> O:
        """Return a function of the inputs of a batch, on a CUDA device from the graph recorded under this name."""
        if self.training:
            self.eval()
        return self._play(name, function, self.inputs(batch))

    @torch.no_grad()
    def _play(self, name: Hashable, function: Callable[[T], O], inputs: T) -> O:
        """Return the same for inputs of any kind that have been made; a method may work in several stages."""
        if self.device.type != "cuda":
            return function(inputs.to(self.device))
        places = [weight.data_ptr() for weight in self.parameters()]
        if places != self._places:
            self._forget()
            self._places = places
        if name not in self._graphs:
            self._graphs[name] = Recorded(function, self.device)
        self._kept_roads()  # graphs read it, but do not make it
        n = inputs.step_mask.shape[1]
        played: O = self._graphs[name](inputs.rounded())
        make: Any = type(played)
        out: O = make(*(part[:, :n].clone() for part in played))
        return out

    def train(self, mode: bool = True) -> Self:
        """Switch between training and use; weights may change in training, so what was kept is made anew after it."""
        self._outdate()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._forget()  # the weights go to another device or type
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def _forget(self) -> None:
        self._roads, self._graphs = None, {}

    def _outdate(self) -> None:
        """Have what was kept made anew, but in place where graphs were recorded: weights have other values there."""
        self._stale = True
        if not self._graphs:
            self._forget()

    def state(self) -> Arrays:
        """Return the weights, and the calibration where there is one."""
        weights = {name: value.detach().cpu().numpy() for name, value in self.state_dict().items()}
        taught = {} if self.calibration is None else self.calibration.state()
        return weights | {CALIBRATION + name: array for name, array in taught.items()}

    def restore(self, state: Arrays) -> None:
        """Take over weights and calibration."""
        own = self.state_dict()
        weights = {name: array for name, array in state.items() if not name.startswith(CALIBRATION)}
        taught = {name.removeprefix(CALIBRATION): array for name, array in state.items() if name not in weights}
        if own.keys() != weights.keys() or any(own[name].shape != array.shape for name, array in weights.items()):
            raise ValueError("the weights do not fit the settings and the network")
        self.calibration = Calibration.restored(taught) if taught else None
        self._outdate()
        self.load_state_dict({name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()})


class DecodingMethod(LearnedMethod[Settings, I], Generic[Settings, I]):
    """A learned method that says positions itself, without a matcher behind it."""

    @abstractmethod
    def decode(self, inputs: I, choices: int | None = None) -> Decoded:
        """Return the positions of a batch, one a step or so many choices."""

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step."""
        return self._calibrated(batch, Recovered(*self._played("decode", self.decode, batch)))

    def best(self, batch: Batch, k: int) -> Choices:
        """Return the k most likely segments of every step."""
        return Choices(*self._played(("decode", k), partial(self.decode, choices=k), batch))
