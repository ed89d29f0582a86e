from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects, no_trips
from tedtrajrec.server.batching import Batcher
from tedtrajrec.server.problems import ProblemError
from tedtrajrec.server.work import Recovery
from tedtrajrec.trips.table import Trips, as_text


def trips_of(*ids: str, at: float = 10.0) -> Trips:
    n = len(ids)
    lon = np.full(2 * n, at)
    return Trips(as_text(list(ids)), np.arange(n + 1) * 2, np.tile([0, 60], n) + 1_500_000_000, lon, lon)


@dataclass(eq=False)
class Names:
    """Work that answers with the ids of the trips, when it is let."""

    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    calls: list[list[list[str]]] = field(default_factory=list)

    def run(self, parts: list[Trips]) -> list[list[str]]:
        self.calls.append([part.traj_id.tolist() for part in parts])
        self.begun.set()
        assert self.go.wait(10)
        return self.calls[-1]


async def ask_while_busy(batcher: Batcher, work: Names, jobs: list[Trips]) -> list[list[str]]:
    """Ask for one job and, when it has begun, for the others."""
    first = asyncio.create_task(batcher.do(work, trips_of("first"), seconds=10))
    await asyncio.to_thread(work.begun.wait, 10)
    rest = [asyncio.create_task(batcher.do(work, job, seconds=10)) for job in jobs]
    await asyncio.sleep(0.05)
    work.go.set()
    return await asyncio.gather(first, *rest)


def test_what_waits_is_done_together_and_results_go_back_to_who_asked() -> None:
    batcher, work = Batcher(most_trips=4), Names()
    jobs = [trips_of("a"), trips_of("b", "c"), trips_of("d", "e"), trips_of("f")]
    answers = asyncio.run(ask_while_busy(batcher, work, jobs))
    batcher.close()
    assert answers == [["first"], ["a"], ["b", "c"], ["d", "e"], ["f"]]
    # d and e do not fit into the second call any more, f does
    assert work.calls == [[["first"]], [["a"], ["b", "c"], ["f"]], [["d", "e"]]]


def test_other_columns_are_done_apart() -> None:
    batcher, work = Batcher(), Names()
    other = trips_of("b").replace(extra={"speed": np.zeros(2)})
    asyncio.run(ask_while_busy(batcher, work, [trips_of("a"), other, trips_of("c")]))
    batcher.close()
    assert work.calls[1:] == [[["a"], ["c"]], [["b"]]]


def test_no_more_wait_than_allowed() -> None:
    async def ask() -> None:
        first = asyncio.create_task(batcher.do(work, trips_of("a"), seconds=10))
        await asyncio.to_thread(work.begun.wait, 10)
        second = asyncio.create_task(batcher.do(work, trips_of("b"), seconds=10))
        await asyncio.sleep(0.02)
        with pytest.raises(ProblemError) as error:
            await batcher.do(work, trips_of("c"), seconds=10)
        assert error.value.status == 429
        assert int(error.value.headers["Retry-After"]) >= 1
        work.go.set()
        assert await asyncio.gather(first, second) == [["a"], ["b"]]

    batcher, work = Batcher(most_waiting=1), Names()
    asyncio.run(ask())
    batcher.close()


def test_a_job_whose_time_is_over_makes_room_and_is_not_begun() -> None:
    async def ask() -> None:
        first = asyncio.create_task(batcher.do(work, trips_of("a"), seconds=10))
        await asyncio.to_thread(work.begun.wait, 10)
        with pytest.raises(ProblemError) as error:
            await batcher.do(work, trips_of("late"), seconds=0.05)
        assert error.value.status == 503
        assert batcher.waiting == 0
        work.go.set()
        await first

    batcher, work = Batcher(), Names()
    asyncio.run(ask())
    batcher.close()
    assert work.calls == [[["a"]]]


def test_closing_finishes_what_waits_and_refuses_more() -> None:
    async def ask() -> None:
        jobs = [asyncio.create_task(batcher.do(work, trips_of(str(i)), seconds=10)) for i in range(5)]
        await asyncio.to_thread(work.begun.wait, 10)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.05)
        with pytest.raises(ProblemError) as error:
            await batcher.do(work, trips_of("z"), seconds=1)
        assert error.value.status == 503
        work.go.set()
        assert await asyncio.gather(*jobs) == [[str(i)] for i in range(5)]
        await closing

    batcher, work = Batcher(), Names()
    asyncio.run(ask())


class Picky:
    """Recovers every trip as its first fix; raises if a trip lies at 13 or 14 degrees."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:  # noqa: ARG002
        self.sizes.append(len(trips))
        if alternatives:
            raise ConfigError("There are no alternatives.")
        if (trips.lon == 13).any():
            raise ZeroDivisionError("/secret/path")
        if (trips.lon == 14).any():
            raise InputError("it lies at 14 degrees", file="/secret/path")
        start = trips.offsets[:-1]
        n = len(trips)
        chosen = np.arange(n)[::-1]  # another order than asked for
        return RecoveredTrips(
            trips.traj_id,
            np.arange(n + 1),
            trips.time[start],
            trips.lon[start],
            trips.lat[start],
            np.zeros(n, np.int32),
            np.zeros(n),
            np.zeros(n, np.int64),
            np.ones(n, bool),
            np.ones(n, np.float32),
            np.zeros(n, bool),
            rejects=Rejects(trips.traj_id[:1], trips.time[:1], as_text(["seen"])),
        ).select(chosen)


def test_a_trip_that_fails_does_not_fail_the_others() -> None:
    parts = [trips_of("a", "b", at=11.0), trips_of("a", at=13.0), trips_of("c", "a", at=12.0), trips_of("e", at=14.0)]
    done = Recovery(Picky(), None, 0).run(parts)
    assert [part.traj_id.tolist() for part in done] == [["a", "b"], [], ["c", "a"], []]
    assert [set(part.lon.tolist()) for part in done] == [{11.0}, set(), {12.0}, set()]
    assert done[1].rejects.reason.tolist() == ["a fault of the service; its log says more"]
    assert done[3].rejects.reason.tolist() == ["it lies at 14 degrees"]
    assert done[3].rejects.time.tolist() == [NO_TIME]
    for part in done:
        assert "secret" not in " ".join(part.rejects.reason.tolist())


def test_what_nobody_can_have_is_an_error_and_not_tried_trip_by_trip() -> None:
    picky = Picky()
    with pytest.raises(ConfigError, match="no alternatives"):
        Recovery(picky, None, 3).run([trips_of("a", "b", "c")])
    assert picky.sizes == [3]


def test_nothing_recovered() -> None:
    class Nothing:
        def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:  # noqa: ARG002
            return no_trips(Rejects(trips.traj_id, np.full(len(trips), NO_TIME), as_text(["no road"] * len(trips))))

    one, two = Recovery(Nothing(), None, 0).run([trips_of("a"), trips_of("b", "c")])
    assert (len(one), len(two)) == (0, 0)
    assert one.rejects.traj_id.tolist() == ["a"]
    assert two.rejects.traj_id.tolist() == ["b", "c"]
