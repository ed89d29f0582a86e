"""Around every request: headers that protect the browser, the last answer to a fault, metrics, and a gentle close."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tedtrajrec.server.metrics import Metrics
from tedtrajrec.server.problems import ProblemError, internal

logger = logging.getLogger("tedtrajrec.server")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self' blob:; child-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy of the map page: everything from this service, no script inside the page."""

_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LINGER_S = 5.0
_LINGER_BYTES = 1 << 30


class Guard:
    """Middleware around the whole app.

    A body that is refused half-way is read on for a moment and thrown away after the answer was sent: closing at once
    would reset the connection, and the client might never see why.

    Parameters
    ----------
    hosts
        Names this service is reached by; any if not given. A service for one machine must not answer to other names,
        or a web page could have its own name point here and read the answers (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, hosts: frozenset[str] | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        started = time.perf_counter()
        try:
            if self._hosts is None or _host(scope) in self._hosts:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                await _WRONG_HOST.response()(scope, exchange.receive, exchange.send)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if exchange.status is not None:
                raise  # the connection must break, or half an answer would look whole
            await internal().response()(scope, exchange.receive, exchange.send)
        finally:
            path = getattr(scope.get("route"), "path", None) or "other"
            self._metrics.requests.labels(path, _verb(scope), str(exchange.status or 500)).inc()
            self._metrics.request_seconds.labels(path).observe(time.perf_counter() - started)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        names = dict(scope["headers"])
        self._more = names.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in names
        self.status: int | None = None
        self._lingers = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._more = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            self._lingers = self._more
            if self._lingers:
                headers["Connection"] = "close"
            await self._send(message)
        elif message["type"] == "http.response.body" and self._lingers and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._throw_away()
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._send(message)

    async def _throw_away(self) -> None:
        thrown = 0
        try:
            async with asyncio.timeout(_LINGER_S):
                while self._more and thrown < _LINGER_BYTES:
                    thrown += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return


_WRONG_HOST = ProblemError(
    "wrong-host", "This service answers to this machine only; TEDTRAJREC_HOSTS names other hosts it is reached by."
)


def _host(scope: Scope) -> str:
    """Return the name that the client used for this service, without the port."""
    name: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]


def _verb(scope: Scope) -> str:
    """Return the verb, or one name for those a client made up, so that metrics stay few."""
    verb: str = scope["method"]
    return verb if verb in {"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"} else "other"
