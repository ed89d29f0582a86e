"""One worker of the service: what it has loaded, its queue and its counts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from starlette.requests import Request

from tedtrajrec.errors import TedtrajrecError
from tedtrajrec.server.batching import Batcher, Result, Work
from tedtrajrec.server.limits import Bodies
from tedtrajrec.server.loading import Served, load_served
from tedtrajrec.server.metrics import Metrics
from tedtrajrec.server.problems import ProblemError, unavailable
from tedtrajrec.server.settings import ServerSettings
from tedtrajrec.trips.table import Trips

logger = logging.getLogger("tedtrajrec.server")

_GAP_S = 1_800  # a longer one is not filled with steps


class Service:
    """What requests share.

    Parameters
    ----------
    load
        Loads what is served; takes its time.
    on_failure
        Called with the error if that fails.
    """

    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[ServerSettings], Served] = load_served,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.bodies = Bodies(settings.limits)
        self.batcher = Batcher(
            most_trips=settings.limits.batch_trips,
            most_waiting=settings.limits.waiting,
            observe=self.metrics.observe_batch,
        )
        self._load = load
        self._on_failure = on_failure
        self._token = settings.read_token()
        self._served: Served | None = None
        self._failed = False

    async def start(self) -> None:
        """Load what is served; meanwhile requests are told to come back."""
        try:
            self._served = await asyncio.to_thread(self._load, self.settings)
            self.metrics.ready.set(1)
            logger.info("Ready: %s", ", ".join(self._served.methods))
        except Exception as error:  # told to whoever started the service
            self._failed = True
            if not isinstance(error, TedtrajrecError):
                logger.exception("The model cannot be loaded")
            if self._on_failure is not None:
                self._on_failure(error)

    def stop(self) -> None:
        """Finish what waits."""
        self.metrics.ready.set(0)
        self.batcher.close()

    @property
    def served(self) -> Served:
        """What is served, or a problem while it is not there yet."""
        if self._served is None:
            if self._failed:
                raise unavailable("The model cannot be loaded; the log of the service says why.", retry_s=60)
            raise unavailable("The model is being loaded.", retry_s=2)
        return self._served

    def check_token(self, request: Request) -> None:
        """Raise a problem unless the request carries the token, where one is needed."""
        if self._token is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        same = secrets.compare_digest(token.strip().encode("latin-1", "replace"), self._token.encode())
        if scheme.lower() != "bearer" or not same:
            raise ProblemError(
                "token",
                "Send 'Authorization: Bearer TOKEN'.",
                headers={"WWW-Authenticate": 'Bearer realm="tedtrajrec"'},
            )

    def check_steps(self, trips: Trips, step_s: int, copies: int) -> None:
        """Raise a problem if the answer would have too many steps."""
        gaps = trips.time[1:] - trips.time[:-1]
        inside = trips.trip_of_fix[1:] == trips.trip_of_fix[:-1]
        steps = (int(gaps[inside].clip(0, _GAP_S).sum()) // step_s + len(trips)) * copies
        most = self.settings.limits.steps
        if steps > most:
            raise ProblemError(
                "too-large", f"These trips have about {steps:,} steps of {step_s} s; an answer may have {most:,}."
            )

    async def do(self, request: Request, work: Work[Result], trips: Trips) -> Result:
        """Return the result of some work; it is given up if the client goes away before it begins."""
        self.metrics.waiting.set(self.batcher.waiting + 1)
        done = asyncio.ensure_future(self.batcher.do(work, trips, seconds=self.settings.limits.seconds))
        # Not below: a job that is given up still waits there until its cancellation has reached it.
        done.add_done_callback(lambda _: self.metrics.waiting.set(self.batcher.waiting))
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise unavailable("The client went away.", retry_s=1)
            return done.result()
        except TedtrajrecError as error:
            raise ProblemError.from_error(error) from error
        finally:
            done.cancel()
            gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
