"""Whether work could be recorded as a CUDA graph, seen on a machine that has no such device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tedtrajrec.nn import kernels

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive", "equal"}


class _Watched(TorchDispatchMode):
    """Refuses operations that wait for the device, or whose shapes depend on values."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        assert name not in WAITING, f"{name} cannot be recorded"
        if name in {"index", "index_put", "index_put_"}:
            kinds = {part.dtype for part in args[1] if part is not None}
            assert torch.bool not in kinds, "a choice by a mask cannot be recorded"
        return func(*args, **(kwargs or {}))


def run_recordable(work: Callable[[], Any]) -> Any:
    """Do some work as on a device that records it, and fail where it could not be recorded."""
    with mock.patch.object(kernels, "RECORDED", {"cpu", "cuda"}), _Watched():
        return work()
