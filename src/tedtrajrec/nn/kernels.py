"""Which form of work suits a device; kernels of our own need Triton and are found at the first use on a CUDA device.

Triton comes with the CUDA builds of torch and is no dependency of this package. Each of its kernels has a twin in plain
tensor operations, which does the work elsewhere and says what the kernel must give.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import torch
from torch import Tensor

RECORDED = {"cuda"}
"""Kinds of devices whose work is recorded in graphs: its shapes must not depend on values, and nothing may wait."""

DEVICES = {"cuda"}
"""Kinds of devices that kernels run on; tests add processors, for which Triton can interpret them."""


def is_recorded(like: Tensor) -> bool:
    """Return whether work on a tensor is to be fit for being recorded, and not only as little as possible."""
    return like.device.type in RECORDED


def kernels_for(name: str, like: Tensor) -> ModuleType | None:
    """Return a module of kernels where they can do with a tensor: in float32, on a CUDA device with Triton.

    Parameters
    ----------
    name
        Of the module in this package.
    like
        What they are to work on.
    """
    return _module(name) if like.device.type in DEVICES and like.dtype == torch.float32 else None


@functools.cache
def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"tedtrajrec.nn.{name}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return None
