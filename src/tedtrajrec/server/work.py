"""The work of requests: recovery and matching of the trips of several requests in one call.

Trips are numbered while they are together, because two requests may use the same id. A call that fails is repeated with
halves of the trips until the one that fails is alone; that one becomes a reject.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects, no_trips
from tedtrajrec.trips.match import Matched, Matcher
from tedtrajrec.trips.table import Trips, as_text, concat_trips

logger = logging.getLogger("tedtrajrec.server")

Result = TypeVar("Result")
Ints = NDArray[np.int64]


class Recovers(Protocol):
    """What recovers trips: a :class:`~tedtrajrec.recovery.recoverer.Recoverer`."""

    def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:
        """Recover trips."""
        ...


@dataclass(frozen=True)
class Recovery:
    """Recovery of trips in one way."""

    recoverer: Recovers
    step_s: int | None
    alternatives: int

    def run(self, parts: list[Trips]) -> list[RecoveredTrips]:
        """Return the recovered trips of each part."""
        found = list(_in_halves(_numbered(parts), self._recover))
        rejects = Rejects.concat([done for done in found if isinstance(done, Rejects)])
        done = [part for part in found if isinstance(part, RecoveredTrips)]
        rejects = Rejects.concat([*(part.rejects for part in done), rejects])
        full = [part for part in done if len(part)]
        result = RecoveredTrips.concat(full) if full else no_trips()
        return [_of_part(result, rejects, part, first) for part, first in zip(parts, _firsts(parts), strict=True)]

    def _recover(self, trips: Trips) -> RecoveredTrips:
        return self.recoverer.recover_trips(trips, self.step_s, alternatives=self.alternatives)


@dataclass(frozen=True, eq=False)
class MatchedPart:
    """Matched trips: those of ``trips``, of which some may be missing and are among the rejects."""

    trips: Trips
    matched: Matched | None
    rejects: Rejects


@dataclass(frozen=True)
class Matching:
    """Matching of trips to the network."""

    matcher: Matcher

    def run(self, parts: list[Trips]) -> list[MatchedPart]:
        """Return the matched fixes of each part; parts are matched one after another, each in several threads."""
        return [self._match_part(part) for part in parts]

    def _match_part(self, part: Trips) -> MatchedPart:
        try:
            return MatchedPart(part, self.matcher.match(part), Rejects())
        except Exception:  # noqa: BLE001  (found again below, trip by trip)
            found = list(_in_halves(_numbered([part]), lambda trips: (trips, self.matcher.match(trips))))
        rejects = Rejects.concat([done for done in found if isinstance(done, Rejects)])
        bad = rejects.traj_id.astype(np.int64)
        good = part.select(np.setdiff1d(np.arange(len(part)), bad))
        named = dataclasses.replace(rejects, traj_id=part.traj_id[bad])
        return MatchedPart(good, self.matcher.match(good) if len(good) else None, named)


def _numbered(parts: list[Trips]) -> Trips:
    """Return the trips of all parts with their numbers as ids."""
    trips = concat_trips(parts)
    return trips.replace(traj_id=as_text(np.arange(len(trips))))


def _firsts(parts: list[Trips]) -> Ints:
    return np.cumsum([0, *(len(part) for part in parts[:-1])])


def _of_part(result: RecoveredTrips, rejects: Rejects, part: Trips, first: int) -> RecoveredTrips:
    """Return what belongs to one part, with its ids."""
    number, rejected = result.traj_id.astype(np.int64) - first, rejects.traj_id.astype(np.int64) - first
    own = np.flatnonzero((number >= 0) & (number < len(part)))
    own = own[np.argsort(number[own], kind="stable")]  # halves and batches leave the order of the request
    out = np.flatnonzero((rejected >= 0) & (rejected < len(part)))
    return dataclasses.replace(
        result.select(own),
        traj_id=part.traj_id[number[own]],
        rejects=Rejects(part.traj_id[rejected[out]], rejects.time[out], rejects.reason[out]),
    )


def _in_halves(trips: Trips, work: Callable[[Trips], Result]) -> Iterator[Result | Rejects]:
    """Yield results of the work on all trips, in pieces where some fail, and the failing trips as rejects."""
    try:
        result = work(trips)
    except ConfigError:  # of what was asked for, not of a trip
        raise
    except Exception as error:
        if len(trips) > 1:
            middle = len(trips) // 2
            yield from _in_halves(trips.select(np.arange(middle)), work)
            yield from _in_halves(trips.select(np.arange(middle, len(trips))), work)
            return
        reason = error.problem if isinstance(error, InputError) else "a fault of the service; its log says more"
        if not isinstance(error, InputError):
            logger.exception("A trip failed")
        yield Rejects(trips.traj_id, np.array([NO_TIME]), as_text([reason]))
    else:
        yield result
