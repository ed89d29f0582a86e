"""Work on a CUDA device recorded as graphs: launching thousands of small kernels costs more than running them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

I = TypeVar("I", bound=Iterable[Tensor])  # noqa: E741  (inputs)
O = TypeVar("O", bound=tuple[Tensor, ...])  # noqa: E741  (outputs)


class Recorded(Generic[I, O]):
    """A function of tensors, recorded once for each set of shapes and played again.

    What it returns is overwritten by the next call with the same shapes. All graphs share their memory, and what was
    freed in one is used by the next where it fits: so the largest shapes are best recorded first.

    Parameters
    ----------
    function
        From a named tuple of tensors to another one. It must not depend on anything but the values of its inputs and of
        tensors that stay where they are, and must not wait for the device.
    device
        A CUDA device.
    """

    def __init__(self, function: Callable[[I], O], device: torch.device) -> None:
        self._function, self._device = function, device
        self._records: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, I, O]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, inputs: I) -> O:
        """Return the function of inputs that are on the CPU or on the device."""
        self.record(inputs)
        graph, static, outputs = self._records[_shapes(inputs)]
        for place, value in zip(static, inputs, strict=True):
            place.copy_(value, non_blocking=True)
        graph.replay()
        return outputs

    def record(self, inputs: I) -> None:
        """Record the function for inputs of these shapes if it is not yet, without playing it."""
        if _shapes(inputs) not in self._records:
            random = torch.cuda.get_rng_state(self._device)
            self._records[_shapes(inputs)] = self._record(inputs)
            torch.cuda.set_rng_state(random, self._device)  # a first call draws what a later one would

    def _record(self, inputs: I) -> tuple[torch.cuda.CUDAGraph, I, O]:
        make: Any = type(inputs)
        static: I = make(*(part.to(self._device).clone() for part in inputs))
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up on the first runs, which cannot be recorded
            for _ in range(2):
                self._function(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # A graph of old that is collected meanwhile would spoil the recording, and so would another thread that pins
        # memory for the next batch, were the recording not this thread's alone.
        gc.collect()
        gc.disable()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = self._function(static)
        finally:
            gc.enable()
        return graph, static, outputs


def _shapes(inputs: Iterable[Tensor]) -> tuple[torch.Size, ...]:
    return tuple(part.shape for part in inputs)
