"""What a learned method costs: products, time and memory.

Products are counted by torch on the CPU, for one batch of trips recovered by a method that has kept nothing yet, so the
representation of the road network is among them, once. torch counts matrix products and convolutions, two operations
each; half of them are multiply-accumulate operations (MACs). Sums over neighbours, look-ups, element-wise work and
compiled kernels (matching, search of candidates) are not counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.evaluation.run import Draw, Evaluation
from tedtrajrec.methods.learned import LearnedMethod

TRIPS = 64
"""Of the batch whose products are counted: the paper's batch."""


def first_batch(draw: Draw) -> Batch:
    """Return the first trips of a draw as a batch."""
    info, here = draw.dataset.info, np.arange(min(TRIPS, len(draw)))
    trips = draw.dataset.split(draw.split).trips(draw.number[here])
    observed = draw.observed[draw.rows(here)]
    return make_batch(trips, observed, draw.dataset.network, step_s=info.step_s, time_zone=info.time_zone)


def count_macs(method: LearnedMethod[Any, Any], batch: Batch) -> int:
    """Return the multiply-accumulate operations of recovering a batch with a method on the CPU."""
    if method.device.type != "cpu":
        raise ValueError("recorded graphs hide products: count on the CPU")
    with _no_fused_products(), FlopCounterMode(display=False) as counter:
        method.recover(batch)
    return int(counter.get_total_flops()) // 2


@contextlib.contextmanager
def _no_fused_products() -> Iterator[None]:
    """Have attention and recurrent layers done as the products that torch counts; of fused forms it counts nothing."""
    fast, fused = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.enabled = fused


def costs(macs: int, evaluation: Evaluation, training: Mapping[str, Any]) -> dict[str, float]:
    """Return what a method costs, as rows have it.

    Parameters
    ----------
    macs
        Of a batch; see :func:`count_macs`.
    evaluation
        Of which the time of a trip is, in batches.
    training
        Of which the median time of an epoch is, the first one left out, which records and compiles, and the peak
        memory in MiB, where it was on a GPU; without training there is neither.
    """
    found = {"macs": macs, "trip_ms": 1000 / evaluation.trips_per_s}
    seconds = [entry["seconds"] for entry in training.get("history", ())]
    if seconds:
        found["epoch_s"] = median(seconds[1:] or seconds)
    if "peak_mib" in training:
        found["peak_mib"] = training["peak_mib"]
    return found
