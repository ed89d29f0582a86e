"""Limits that hold before anything is parsed: bytes, seconds to send them, and rough counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from tedtrajrec.server.problems import ProblemError, busy, unavailable
from tedtrajrec.server.settings import Limits


class Bodies:
    """Reads bodies within the limits; all bodies held at one time have a limit together.

    A slow client holds no more than what it has sent, so it cannot keep others out.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request; its bytes count as held until the block ends."""
        self._check_declared(request)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.stream():
                    self._held += len(chunk)
                    body += chunk
                    if len(body) > self._limits.body_bytes:
                        raise self._too_large()
                    if self._held > self._limits.held_bytes:
                        raise busy("The bodies of other requests fill the memory set aside for them.", retry_s=2)
            yield bytes(body)
        except TimeoutError as error:
            raise ProblemError("too-slow", f"The body must be sent within {self._limits.body_seconds:g} s.") from error
        except ClientDisconnect as error:  # nobody reads this answer
            raise unavailable("The client went away.", retry_s=1) from error
        finally:
            self._held -= len(body)

    def _check_declared(self, request: Request) -> None:
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise ProblemError("media-type", "Compressed bodies are not read; send it as it is.")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> ProblemError:
        return ProblemError(
            "too-large",
            f"A body may have {self._limits.body_bytes:,} bytes. Send the trips in several requests, "
            "or recover large files on the command line.",
        )


def check_json(body: bytes, limits: Limits) -> None:
    """Raise a problem if a JSON body has too many points or trips, at the speed of a byte search.

    Parsing would first build objects of many times the size of the body. Names written with escapes are not found here;
    they are counted after parsing.
    """
    check_points(body.count(b'"lat":'), limits)
    check_trips(body.count(b'"traj_id":'), limits)


def check_points(points: int, limits: Limits) -> None:
    """Raise a problem if there are too many points."""
    if points > limits.points:
        raise ProblemError("too-large", f"A request may have {limits.points:,} points.", field="trips")


def check_trips(trips: int, limits: Limits) -> None:
    """Raise a problem if there are too many trips."""
    if trips > limits.trips:
        raise ProblemError("too-large", f"A request may have {limits.trips:,} trips.", field="trips")
