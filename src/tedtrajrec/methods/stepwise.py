"""Methods that decode step by step: an encoder of the fixes and a decoder that all of them share."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, cast

import torch
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.learned import BatchTensors, DecodingMethod, I, Inputs, Losses, Settings
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.constraint import Constraint, Mask, constrain
from tedtrajrec.nn.decoder import Decoded, Encoded, Fed, Ready, StepDecoder
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_loss import Chosen, chosen_loss, segment_loss
from tedtrajrec.nn.shortlist import Shortlist


class StepwiseMethod(DecodingMethod[Settings, I], Generic[Settings, I]):
    """A method whose next step hears of the last; subclasses encode the fixes and make the decoder.

    It sees a batch as :class:`Inputs`, or as tensors of which these are the first.
    """

    decoder: StepDecoder

    def __init__(self, network: RoadNetwork, config: Settings | None = None) -> None:
        super().__init__(network, config)
        self._shortlist: Shortlist | None = None  # of the decoder, kept as the roads are

    @abstractmethod
    def encode(self, inputs: I, roads: Roads) -> Encoded:
        """Return the representation of the fixes."""

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> I:
        """Return a batch as this method sees it, on the batch's device; those that need more than this say so."""
        return cast("I", self.plain_inputs(batch, forced))

    def constraint(self, inputs: Inputs) -> Constraint:
        """Return the constraint mask of a batch."""
        return constrain(
            inputs.nearby,
            inputs.fix_step,
            inputs.fix_mask,
            inputs.step_mask.shape[1],
            radius_m=self.config.mask_radius_m,
            beta_m=self.config.mask_beta_m,
            floor=self.config.mask_floor,
        )

    def mask(self, inputs: Inputs) -> Mask:
        """Return what is added to the scores of a batch: the constraint mask, unless a method has more to say."""
        return self.constraint(inputs)

    def chosen(self, inputs: I) -> Chosen | None:  # noqa: ARG002
        """Return the segments that each trip of a batch may use: all, unless a method says which."""
        return None

    def roads_for(self, inputs: I) -> Roads:  # noqa: ARG002
        """Return the roads for a training batch: of the whole network, unless a method sees a part of it."""
        return self.roads()

    def loss(self, inputs: I) -> Losses:
        """Return the losses of a batch."""
        roads = self.roads_for(inputs)
        return self.loss_of(plain(inputs), roads, self.encode(inputs, roads), self.chosen(inputs))

    def loss_of(self, inputs: Inputs, roads: Roads, encoded: Encoded, chosen: Chosen | None = None) -> Losses:
        """Return the losses of the decoder for encoded fixes, over the segments that each trip may use."""
        mask = self.mask(inputs)
        ready = self.decoder.prepare(encoded, inputs.step_minute)
        fed = self._feed(inputs, roads, encoded, mask, ready, chosen)
        state = self.decoder.states(encoded, roads, inputs.step_minute, fed, ready)

        known = inputs.segment >= 0
        count = known.sum().clamp_min(1)
        if chosen is None:
            miss = segment_loss(state, self.decoder.score, mask, inputs.segment, smoothing=self.config.smoothing)
        else:
            truth, smoothing = inputs.segment, self.config.smoothing
            miss = chosen_loss(state, chosen, self.constraint(inputs), truth, smoothing=smoothing)
        road = roads.at(inputs.segment.clamp_min(0), inputs.step_minute)
        off = (self.decoder.ratio(state, road) - inputs.ratio) ** 2 * known
        segment, ratio = miss / count, off.sum() / count
        return Losses(segment + self.config.ratio_weight * ratio, segment.detach(), ratio.detach(), known.sum())

    def _feed(
        self, inputs: Inputs, roads: Roads, encoded: Encoded, mask: Mask, ready: Ready, chosen: Chosen | None
    ) -> Fed:
        """Return what each step of a training batch is fed: the truth where it is forced, else what it predicts."""
        truth = Fed(inputs.segment.clamp_min(0), inputs.ratio, inputs.forced)
        training = self.decoder.training
        self.decoder.eval()
        if chosen is not None:
            mask = chosen.within(self.constraint(inputs))
        decoded = self.decoder.decode(encoded, roads, inputs.step_minute, mask, truth, ready, chosen=chosen)
        self.decoder.train(training)
        return Fed(decoded.segment, decoded.ratio, inputs.forced)

    @torch.no_grad()
    def decode(self, inputs: I, choices: int | None = None) -> Decoded:
        """Return the most likely positions of a batch, one a step or so many choices.

        The road part is computed once for all batches.
        """
        roads, steps = self._kept_roads(), plain(inputs)
        minute, mask, chosen = steps.step_minute, self.mask(steps), self.chosen(inputs)
        if chosen is not None:
            mask = chosen.within(self.constraint(steps))
            encoded = self.encode(inputs, roads)
            return self.decoder.decode(encoded, roads, minute, mask, choices=choices, chosen=chosen)
        if self.device.type != "cpu" or len(inputs.step_mask) != 1 or not isinstance(mask, Constraint):
            return self.decoder.decode(self.encode(inputs, roads), roads, minute, mask, choices=choices)
        if self._shortlist is None:
            self._shortlist = self.decoder.shortlist()
        with _one_thread():
            encoded = self.encode(inputs, roads)
            return self.decoder.decode_alone(encoded, roads, minute, mask, self._shortlist, choices=choices)

    def _forget(self) -> None:
        super()._forget()
        self._shortlist = None


def plain(inputs: BatchTensors) -> Inputs:
    """Return the part of a batch that all methods see: its first tensors."""
    return Inputs(*itertools.islice(inputs, len(Inputs._fields)))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on this thread alone: for the small operations of one trip, others take longer to wake than to work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
