"""Feasible decoding: of the likely segments of all steps, the most likely trip that can be driven.

A method that answers each step by itself may leap between roads. Here it gives several segments e_i of each step with
their probabilities, and the trip is taken that makes

    sum_i log p(e_i) - sum_i metres(e_i, e_{i+1}) / scale

greatest among those that can be driven (:mod:`tedtrajrec.methods.driving`). Links that past trips show are breaks too,
for the map does not have them.

Its probabilities are what the method gave to the segments taken. Those of a chain with these scores and moves are worse
(``docs/log.md``): each step already knows of all fixes, so the chain would count the same evidence many times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays, Choices, Method, Recovered, as_recovered
from tedtrajrec.methods.driving import Driven, Driver
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS

CHOICES = 12
SCALE_M = 400.0
MARGIN = 3.0


class Feasible(Method[Any]):
    """A method whose answers are made trips that can be driven; it has its name, and is saved as it.

    A method that gives one segment a step keeps these, and only its ratios are changed.

    Parameters
    ----------
    method
        The method, ready for use.
    choices
        Segments of each step, at most.
    scale_m
        Driving so many metres more must make a trip e times as likely.
    margin
        Segments that are less likely than the best one of their step by more are no choices; nats.
    top_speed_mps
        What no move may exceed.
    """

    def __init__(
        self,
        method: Method[Any],
        *,
        choices: int = CHOICES,
        scale_m: float = SCALE_M,
        margin: float = MARGIN,
        top_speed_mps: float = TOP_SPEED_MPS,
    ) -> None:
        super().__init__(method.network, method.config)
        self.method, self.choices = method, choices
        self.name = method.name  # type: ignore[misc]
        one_answer = type(method).best is Method.best
        self.decoding = "feasible ratios" if one_answer else "feasible"
        self._driver = Driver(method.network, margin=margin, scale_m=scale_m, top_speed_mps=top_speed_mps)

    @property
    def note(self) -> str:
        """What a user should know of the method."""
        return self.method.note

    def precompute(self, dataset: Dataset) -> None:
        """Have the method learn."""
        self.method.precompute(dataset)

    def state(self) -> Arrays:
        """Return what the method learned."""
        return self.method.state()

    def restore(self, state: Arrays) -> None:
        """Have the method take over what :meth:`state` returned."""
        self.method.restore(state)

    def recover(self, batch: Batch) -> Recovered:
        """Return the most likely trips that can be driven."""
        driven = self.drive(batch, self.method.best(batch, self.choices))
        return as_recovered(batch, driven.segment.astype(np.int32), driven.ratio, driven.log_prob)

    def drive(self, batch: Batch, choices: Choices) -> Driven:
        """Return the most likely trips that can be driven among the choices of the steps of a batch."""
        return self._driver.drive(batch, choices)
