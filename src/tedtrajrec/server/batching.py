"""Micro-batching: one thread does the work of all requests, and takes together what waits.

When nothing waits a request is taken at once, so batching never adds a delay; while the thread is at work requests
gather, and those that ask for the same thing are done in one call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tedtrajrec.errors import TedtrajrecError
from tedtrajrec.server.problems import busy, unavailable
from tedtrajrec.trips.table import Trips

logger = logging.getLogger("tedtrajrec.server")

Result = TypeVar("Result")


class Work(Protocol[Result]):
    """Something to do with trips; equal ones (by hash) are done in one call."""

    def run(self, parts: list[Trips]) -> list[Result]:
        """Return one result for each part; a trip that fails must not fail the others."""
        ...


@dataclass(frozen=True, eq=False)
class _Job(Generic[Result]):
    work: Work[Result]
    trips: Trips
    future: Future[Result]

    @property
    def key(self) -> tuple[object, ...]:
        """What must be equal for two jobs to be done in one call: the work, and the columns of the trips."""
        columns = (self.trips.extra, self.trips.trip_extra)
        kinds = tuple((name, str(values.dtype)) for table in columns for name, values in table.items())
        return self.work, kinds, len(self.trips.extra), self.trips.segment is None, self.trips.ratio is None


class Batcher:
    """Does jobs in one thread, several together where they wait.

    Parameters
    ----------
    most_trips
        Trips taken together; a single larger job is done alone.
    most_waiting
        Jobs that may wait; the next one is refused.
    observe
        Called after each call with the numbers of jobs and trips, and the seconds it took.
    """

    def __init__(
        self,
        *,
        most_trips: int = 64,
        most_waiting: int = 64,
        observe: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.most_trips = most_trips
        self.most_waiting = most_waiting
        self._observe = observe
        self._waiting: deque[_Job[Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._last_s = 1.0
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._waiting)

    async def do(self, work: Work[Result], trips: Trips, *, seconds: float) -> Result:
        """Return the result of the work, or raise a problem if there is no room or it takes too long.

        A job that nobody awaits any more is not begun.
        """
        job = _Job(work, trips, Future[Result]())
        with self._changed:
            if self._closed:
                raise unavailable("The service is stopping.", retry_s=5)
            if len(self._waiting) >= self.most_waiting:
                raise busy(f"{self.most_waiting} requests are waiting already.", retry_s=self._until_room())
            self._waiting.append(job)
            self._changed.notify()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.future), seconds)
        except TimeoutError as error:
            raise unavailable(
                f"No answer within {seconds:g} s. Send fewer trips at once, or come back later.",
                retry_s=self._until_room(),
            ) from error
        finally:
            if job.future.cancelled():
                self._forget(job)

    def close(self) -> None:
        """Finish what waits and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _forget(self, job: _Job[Any]) -> None:
        """Make room: nobody awaits the job."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def _until_room(self) -> int:
        """Return a guess in seconds."""
        return max(1, min(60, round(self._last_s * (1 + len(self._waiting) / 8))))

    def _serve(self) -> None:
        while jobs := self._take():
            started = time.monotonic()
            try:
                results = jobs[0].work.run([job.trips for job in jobs])
            except Exception as error:  # the thread must outlive any fault
                if not isinstance(error, TedtrajrecError):
                    logger.exception("A batch of %d requests failed", len(jobs))
                for job in jobs:
                    job.future.set_exception(error)
            else:
                for job, result in zip(jobs, results, strict=True):
                    job.future.set_result(result)
            self._last_s = time.monotonic() - started
            if self._observe is not None:
                self._observe(len(jobs), sum(len(job.trips) for job in jobs), self._last_s)

    def _take(self) -> list[_Job[Any]]:
        """Wait for a job, and return it with those that can be done in the same call; nothing at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return []
                taken: list[_Job[Any]] = []
                left: deque[_Job[Any]] = deque()
                trips = 0
                for job in self._waiting:
                    fits = not taken or (job.key == taken[0].key and trips + len(job.trips) <= self.most_trips)
                    if not fits:
                        left.append(job)
                    elif job.future.set_running_or_notify_cancel():
                        taken.append(job)
                        trips += len(job.trips)
                self._waiting = left
                if taken:
                    return taken
