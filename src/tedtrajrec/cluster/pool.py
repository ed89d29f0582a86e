"""Tasks of a Ray cluster in place of ``map``: the same function over the same items, with results in the same order.

What the function carries with it (a network with its indexes, a model) is put into the object store once, and Ray takes
it to each node once. An item is a task of one processor; tasks of workers and nodes that are lost are run again by Ray.

Arrays come out of the object store as read-only views of its memory. Compiled kernels are made for the kind of array
they meet, so that they would be compiled anew for those, where that is possible at all. Here arrays come out as they
went in: those that cannot be written, such as all of a road network, stay in the memory that the workers of a node
share; of others each worker has a copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import ConfigError, TedtrajrecError
from tedtrajrec.optional import load_optional
from tedtrajrec.threads import THREADS, Over

if TYPE_CHECKING:
    from ray import ObjectRef

T = TypeVar("T")
Item = TypeVar("Item")

RETRIES = 5
"""How often a task is run again whose worker was lost."""

LOCAL = "local"
"""The address of a cluster that is started on this machine for the time of the work."""

_held: dict[str, Any] = {}  # in a worker: the function it last worked with


class RayPool:
    """A connection to a Ray cluster; :func:`ray_pool` makes one.

    Parameters
    ----------
    ray
        The library.
    gpus
        Share of a GPU that each task takes.
    """

    def __init__(self, ray: Any, *, gpus: float = 0.0) -> None:  # noqa: ANN401  (a module)
        self._ray = ray
        self._call = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_call)

    @property
    def processors(self) -> int:
        """How many processors the nodes of the cluster have together, at least 1."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def map(self, function: Callable[[Item], T], items: Iterable[Item], /) -> Iterator[T]:
        """Yield the result of every item, in order; see :class:`tedtrajrec.threads.Over`.

        Twice as many tasks as there are processors are under way at a time, so that items are taken as they are needed.
        """
        shared = self._ray.put(_pack(function))
        waiting: deque[ObjectRef[T]] = deque()
        try:
            for item in items:
                waiting.append(self._call.remote([shared], _pack(item)))
                if len(waiting) >= 2 * self.processors:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for task in waiting:
                self._ray.cancel(task)

    def _result(self, task: ObjectRef[T]) -> T:
        errors = self._ray.exceptions
        try:
            result: T = _unpack(self._ray.get(task))
        except errors.RayTaskError as error:
            if isinstance(error.cause, TedtrajrecError):  # bad input, told as it is
                raise error.cause from None
            raise
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise TedtrajrecError(
                f"A part was given up after its worker was lost {RETRIES + 1} times; workers may have too little "
                f"memory. Give the command again to go on. Ray says: {error}"
            ) from error
        return result


class _Packed(NamedTuple):
    """A pickled object."""

    data: bytes
    arrays: list[NDArray[np.uint8]]  # the memory of its arrays
    writable: list[bool]  # whether they can be written


def _pack(value: object) -> _Packed:
    from ray import cloudpickle  # noqa: PLC0415

    buffers: list[pickle.PickleBuffer] = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)  # type: ignore[no-untyped-call]
    views = [buffer.raw() for buffer in buffers]
    return _Packed(data, [np.frombuffer(view, np.uint8) for view in views], [not view.readonly for view in views])


def _unpack(packed: _Packed) -> Any:  # noqa: ANN401
    pairs = zip(packed.arrays, packed.writable, strict=True)
    return pickle.loads(packed.data, buffers=[bytearray(array) if writable else array for array, writable in pairs])  # noqa: S301


def _call(shared: list[Any], item: _Packed) -> _Packed:
    """Call the shared function in a worker, which keeps it for the next task."""
    import ray  # noqa: PLC0415  (there is one where this runs)

    os.environ[THREADS] = "1"  # a task has one processor
    (reference,) = shared
    if reference.hex() not in _held:
        _held.clear()
        _held[reference.hex()] = _unpack(ray.get(reference))
    return _pack(_held[reference.hex()](_unpack(item)))


@contextlib.contextmanager
def ray_pool(
    address: str, *, processors: int | None = None, gpus: float = 0.0, show_output: bool = False
) -> Iterator[RayPool]:
    """Connect to a Ray cluster, and leave it at the end.

    Parameters
    ----------
    address
        ``local`` to start a cluster on this machine, ``auto`` for the one that runs here, or its address.
    processors
        Of a cluster that is started; all if not given.
    gpus
        Share of a GPU that each task takes.
    show_output
        Whether to show what workers print.

    Raises
    ------
    ConfigError
        If there is no cluster at the address.
    """
    ray = load_optional("ray", "cluster")
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": show_output}
    if address == LOCAL:
        settings |= {"address": LOCAL, "num_cpus": processors, "include_dashboard": False}
    else:
        settings["address"] = address
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"There is no Ray cluster at {address} ({error}). Start one with 'ray start --head', or use --ray local."
        ) from error
    try:
        yield RayPool(ray, gpus=gpus)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def over_chunks(address: str | None) -> Iterator[Over]:
    """Yield the way through chunks and parts that an option ``--ray`` asks for; without, they are done here."""
    if address is None:
        yield map
        return
    with ray_pool(address) as pool:
        yield pool.map
