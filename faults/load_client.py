"""A load generator: requests one after another, or by the clock whether answers come or not; and slow clients."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

HEAD = b"POST /v1/recover HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PATIENCE_S = 120.0  # a request without an answer after that hangs


@dataclass
class Asked:
    """What came of some requests."""

    sent: int = 0
    took_s: float = 0.0  # from the first request to the last answer
    offered_s: float = 0.0  # from the first request to the last one
    seconds: list[float] = field(default_factory=list)  # of those answered with 200
    status: collections.Counter[str] = field(default_factory=collections.Counter)
    without_retry_after: int = 0  # answers 429 and 503 that do not say when to come back
    memory_mib: list[int] = field(default_factory=list)


class Client:
    """Asks one service, over connections that are kept; an own one, since httpx takes more time than the service.

    Parameters
    ----------
    url
        Address of the service.
    bodies
        JSON of the requests, taken in turn.
    """

    def __init__(self, url: str, bodies: list[bytes]) -> None:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        self._address = host, int(port)
        self._requests = [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, number: int, asked: Asked) -> None:
        """Send a request and note what came of it."""
        request = self._requests[number % len(self._requests)]
        asked.sent += 1
        started = time.perf_counter()
        try:
            status, headers = await asyncio.wait_for(self._exchange(request), PATIENCE_S)
        except (OSError, EOFError, TimeoutError) as error:
            asked.status[type(error).__name__] += 1
            return
        asked.status[status] += 1
        if status == "200":
            asked.seconds.append(time.perf_counter() - started)
        elif status in {"429", "503"} and b"retry-after:" not in headers:
            asked.without_retry_after += 1

    async def _exchange(self, request: bytes) -> tuple[str, bytes]:
        while self._idle:
            connection = self._idle.pop()
            if not connection[0].at_eof():  # the service closes what is not used for some seconds
                return await self._over(connection, request)
            connection[1].close()
        return await self._over(await asyncio.open_connection(*self._address), request)

    async def _over(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
    ) -> tuple[str, bytes]:
        reader, writer = connection
        try:
            writer.write(request)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        except BaseException:
            writer.close()
            raise
        if b"connection: close" in head:
            writer.close()
        else:
            self._idle.append(connection)
        return head.split(b" ", 2)[1].decode(), head

    async def one_after_another(self, clients: int, seconds: float) -> Asked:
        """Ask with some clients, each of which waits for its answer before it asks again."""
        asked = Asked()
        started = time.perf_counter()

        async def client(number: int) -> None:
            while time.perf_counter() < started + seconds:
                await self.ask(number, asked)
                number += clients

        await asyncio.gather(*(client(number) for number in range(clients)))
        asked.offered_s = asked.took_s = time.perf_counter() - started
        self._close()
        return asked

    async def by_the_clock(self, rate: float, seconds: float, memory_mib: Callable[[], int] = lambda: 0) -> Asked:
        """Ask so many times a second, whether answers come or not, and look at the memory ten times meanwhile."""
        asked = Asked()
        tasks: set[asyncio.Task[None]] = set()
        started, count = time.perf_counter(), max(1, int(rate * seconds))
        for number in range(count):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            task = asyncio.create_task(self.ask(number, asked))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if number % -(-count // 10) == 0:
                asked.memory_mib.append(memory_mib())
        asked.offered_s = time.perf_counter() - started
        await asyncio.gather(*tasks)
        asked.took_s = time.perf_counter() - started
        asked.memory_mib.append(memory_mib())
        self._close()
        return asked

    def _close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


@contextlib.contextmanager
def slow_clients(url: str, count: int) -> Iterator[None]:
    """Hold connections that never finish a request: some silent, some within the headers, some within the body."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    sent = (b"", HEAD[:30], HEAD + b'Content-Length: 100\r\n\r\n{"trips"')
    with contextlib.ExitStack() as held:
        for number in range(count):
            connection = held.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(sent[number % 3])
        yield
