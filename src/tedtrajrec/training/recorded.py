"""Training steps recorded as CUDA graphs: launching thousands of small kernels costs more than running them."""

from __future__ import annotations

import torch

from tedtrajrec.methods.learned import Inputs, LearnedMethod, Losses


class RecordedLoss:
    """Forward and backward pass of a method, recorded once for each shape of batch and played again.

    Gradients are left in the parameters, as ``loss.backward()`` would.

    Parameters
    ----------
    method
        The method, on a CUDA device and in training mode.
    """

    def __init__(self, method: LearnedMethod) -> None:  # type: ignore[type-arg]
        self._method = method
        self._parameters = list(method.parameters())
        self._records: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, Inputs, Losses]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, inputs: Inputs) -> Losses:
        """Run forward and backward pass on a batch that is on the CPU or on the device."""
        shapes = tuple(part.shape for part in inputs)
        if shapes not in self._records:
            self._records[shapes] = self._record(inputs.to(self._method.device))
        graph, static, losses = self._records[shapes]
        for place, value in zip(static, inputs, strict=True):
            place.copy_(value, non_blocking=True)
        graph.replay()
        return losses

    def _record(self, inputs: Inputs) -> tuple[torch.cuda.CUDAGraph, Inputs, Losses]:
        static = Inputs(*(part.clone() for part in inputs))
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up on the first passes, which cannot be recorded
            for _ in range(2):
                self._run(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            losses = self._run(static)
        return graph, static, losses

    def _run(self, inputs: Inputs) -> Losses:
        losses = self._method.loss(inputs)
        # Not backward(): it adds to gradients on the stream where a parameter was first used, which is another one.
        gradients = torch.autograd.grad(losses.total, self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(gradient)
        return Losses(*(value.detach() for value in losses))


def round_up(inputs: Inputs, fixes: int = 4, steps: int = 8) -> Inputs:
    """Pad a batch so that few shapes occur: fixes and steps to multiples of these.

    Padding changes no result; each new shape costs a recording.
    """
    extra_m = -inputs.fix_mask.shape[1] % fixes
    extra_n = -inputs.step_mask.shape[1] % steps
    fill = {"near_distance": torch.inf, "segment": -1}
    padded = {}
    for name, value in inputs._asdict().items():
        extra = extra_m if name.startswith(("near", "fix")) else extra_n
        shape = (value.shape[0], extra, *value.shape[2:])
        padded[name] = torch.cat([value, value.new_full(shape, fill.get(name, 0))], dim=1)
    return Inputs(**padded)
