"""Connections that must speak soon: a client that opens one and dribbles its request line is cut off."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tedtrajrec.server.problems import MEDIA_TYPE, ProblemError

HEADER_SECONDS = 10.0


class PromptProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with a limit on the time until a request is there, and problems for 400."""

    _prompt: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        # asyncio sets this only on sockets that were made with the number of TCP; without, small answers wait 40 ms
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what has come; a whole request line and headers stop the clock."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._prompt is None and not self.transport.is_closing():  # a later request has begun to come
            self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, and close."""
        problem = ProblemError("not-understood", msg)
        content = problem.content()
        headers: list[tuple[bytes, bytes]] = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        events: list[Any] = [
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ]
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait_for_request(self) -> None:
        self._prompt = self.loop.call_later(HEADER_SECONDS, self._cut_off)

    def _stop_waiting(self) -> None:
        if self._prompt is not None:
            self._prompt.cancel()
            self._prompt = None

    def _cut_off(self) -> None:
        self._prompt = None
        if not self.transport.is_closing():
            self.transport.abort()
