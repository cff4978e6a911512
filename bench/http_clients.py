"""HTTP clients that cost little, so that the server is measured: they throw away their answers, unread.

Each sends one call after the other on a connection of its own. All clients of a run share a loop, and one buffer that
is small enough to stay in the processor's cache: clients that keep 64 answers of a few MiB each are slower than any
server.
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

BUFFER_BYTES = 256 << 10
LINE = -1
"""Yielded by a reader that wants a line next, in place of a number of bytes to be thrown away."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The answers that all clients of one run got."""

    rate: float
    """Bytes of bodies a second."""
    p99: float
    """Seconds of a call."""


async def taken(address: str, paths: Iterator[str], media_type: str, clients: int, seconds: float) -> Taken:
    """Return the answers to ``paths``, which the clients share. Raises SystemExit for any answer but 200 and 429.

    ``address`` may begin with https://: any certificate is accepted. A refused client waits as long as the answer asks.
    """
    scheme, host, port = address.replace("//", "").split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if scheme == "https" else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    loop, buffer = asyncio.get_running_loop(), bytearray(BUFFER_BYTES)
    client = partial(_Client, paths, media_type, buffer)
    opened = [(await loop.create_connection(client, host, int(port), ssl=context))[1] for _ in range(clients)]
    began = time.perf_counter()
    for each in opened:
        each.begin(began + seconds)
    for each in opened:
        await each.ended
    took = time.perf_counter() - began
    times = [call for each in opened for call in each.times]
    p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    return Taken(sum(each.body_bytes for each in opened) / took, p99)


class _Client(asyncio.BufferedProtocol):
    def __init__(self, paths: Iterator[str], media_type: str, buffer: bytearray) -> None:
        self._paths, self._media_type, self._until = paths, media_type, 0.0
        self._buffer, self._view = buffer, memoryview(buffer)
        self._reading = self._read()
        self._wanted, self._line, self._path = next(self._reading), b"", ""
        self._asked_at = 0.0
        self.ended = asyncio.get_running_loop().create_future()
        self.times: list[float] = []
        self.body_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def begin(self, until: float) -> None:
        """Send the first call. None is sent at or after ``until``."""
        self._until = until
        self._next()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        at = 0
        while at < nbytes:
            if self._wanted == LINE:
                end = self._buffer.find(b"\n", at, nbytes) + 1
                self._line += self._view[at : end or nbytes]
                at = end or nbytes
                if end:
                    line, self._line = self._line[:-2], b""
                    self._wanted = self._reading.send(line)
            else:
                thrown = min(self._wanted, nbytes - at)
                at += thrown
                self._wanted -= thrown
            while self._wanted == 0:
                self._wanted = self._reading.send(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or SystemExit(f"{self._path}: the connection was closed"))

    def _read(self) -> Generator[int, bytes, None]:
        """Parse answers, as HTTP/1.1 has them: yield `LINE`, or the number of bytes to skip."""
        while True:
            status = yield LINE
            head = {}
            while line := (yield LINE):
                name, value = line.lower().split(b": ", 1)
                head[name] = value
            body = 0
            if b"content-length" in head:
                body = int(head[b"content-length"])
                yield body
            else:
                while size := int((yield LINE), 16):
                    body += size
                    yield size + 2
                while (yield LINE):
                    pass  # a trailer
            self._answered(status, body, float(head.get(b"retry-after", 0)))

    def _answered(self, status: bytes, body: int, retry_s: float) -> None:
        if b" 429 " in status:
            self._ask(retry_s)
        elif b" 200 " in status:
            self.times.append(time.perf_counter() - self._asked_at)
            self.body_bytes += body
            self._next()
        else:
            self.ended.set_exception(SystemExit(f"{self._path}: {status!r}"))

    def _next(self) -> None:
        self._path, self._asked_at = next(self._paths), time.perf_counter()
        self._ask()

    def _ask(self, wait_s: float = 0.0) -> None:
        """Send the call in ``wait_s``, or end if that is too late."""
        if time.perf_counter() + wait_s >= self._until:
            self.ended.set_result(None)
            self._transport.close()
        elif wait_s:
            asyncio.get_running_loop().call_later(wait_s, self._ask)
        else:
            head = f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {self._media_type}\r\n\r\n"
            self._transport.write(head.encode())
