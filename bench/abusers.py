"""A client that abuses a gateway: ``python -m bench.abusers ADDRESS NAME`` prints ``begun`` and goes on until killed.

It shares two cores with the gateway, which must not wait for what the abusers need themselves: a thousand connections
that come again cost asyncio a third of a core, and the plain sockets here a twentieth.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from tierstate.api.media import BATCHES, NDJSON

from .consumer import SIZES

ELSEWHERE = "127.0.0.2"
AGAIN_S, SETTLED_S = 0.5, 1.0
"""Seconds after which a closed connection comes again; and after which all of them have begun."""
LOCAL, COLD, BOMBS = "bench-local", "bench-cold", "bench-bombs"
COLD_RECORDS, COLD_READERS = SIZES["1 KB lz4"][2], 64
CHUNK_RECORDS = 6_500
"""A little more than a chunk of the gateway's cache holds: no connection finds a chunk that another one has read."""
SLOW_HEAD = b"GET /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Padding: " + b"a" * 4000


# --- connections that say little, or nothing -------------------------------------------------------------------------


class _Crowd:
    """Plain sockets: one that the gateway closes connects again; each sends a byte of ``said`` a second."""

    def __init__(self, to: tuple[str, int], count: int, said: bytes) -> None:
        self._to, self._said = to, said
        self._poll, self._here = select.epoll(), dict[int, socket.socket]()
        self._coming = deque([time.monotonic()] * count)
        self._saying = deque[tuple[float, socket.socket, int]]()

    def turn(self) -> None:
        now = time.monotonic()
        while self._coming and self._coming[0] <= now:
            self._coming.popleft()
            self._connect()
        while self._saying and self._saying[0][0] <= now:
            _, one, at = self._saying.popleft()
            self._say(one, at)
        for descriptor, _ in self._poll.poll(0.005):
            self._here.pop(descriptor).close()
            self._coming.append(time.monotonic() + AGAIN_S)

    def _connect(self) -> None:
        one = socket.socket()
        one.bind((ELSEWHERE, 0))
        one.setblocking(False)
        with suppress(BlockingIOError):
            one.connect(self._to)
        self._here[one.fileno()] = one
        self._poll.register(one, select.EPOLLIN | select.EPOLLRDHUP)
        self._say(one, 0)

    def _say(self, one: socket.socket, at: int) -> None:
        if at < len(self._said) and one.fileno() >= 0:
            with suppress(OSError):  # closed by the gateway: epoll reports it too
                one.send(self._said[at : at + 1])
            self._saying.append((time.monotonic() + 1.0, one, at + 1))


def _crowd(to: tuple[str, int], count: int, said: bytes) -> None:
    crowd = _Crowd(to, count, said)
    settled = time.monotonic() + SETTLED_S
    while time.monotonic() < settled:
        crowd.turn()
    os.write(1, b"begun\n")
    while True:
        crowd.turn()


# --- connections that ask --------------------------------------------------------------------------------------------

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


async def _forever(count: int, connect: Connect, act: Callable[[Streams, int], Awaitable[None]]) -> None:
    """Run ``count`` connections at a time; one that the gateway closes connects again."""

    async def one(number: int) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, ConnectionError):
                streams = await connect()
                await act(streams, number)
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _ask_and_read_nothing(streams: Streams, number: int) -> None:
    cast(asyncio.Transport, streams[1].transport).pause_reading()
    for offset in itertools.count(0, 64):
        streams[1].write(_request(f"{LOCAL}/partitions/0/records?max_bytes=1048576&offset={offset % 6400}", NDJSON))
        await streams[1].drain()
        await asyncio.sleep(0.1)


async def _ask_for_what_is_refused(streams: Streams, number: int) -> None:
    for query in itertools.cycle(("offset=x", "max_recrods=1", "offset=-7", "offset=0&max_bytes=none")):
        streams[1].write(_request(f"{LOCAL}/partitions/0/records?{query}", NDJSON))
        await _answer(streams[0])


async def _read_cold(streams: Streams, number: int) -> None:
    for at in itertools.count(number * COLD_RECORDS // COLD_READERS, CHUNK_RECORDS):
        streams[1].write(
            _request(f"{COLD}/partitions/0/records?tier=remote&max_bytes=65536&offset={at % COLD_RECORDS}", BATCHES)
        )
        await _answer(streams[0])


async def _ask_for_bombs(streams: Streams, number: int) -> None:
    while True:
        streams[1].write(_request(f"{BOMBS}/partitions/0/records?max_records=1&max_bytes=1&offset=0", NDJSON))
        await _answer(streams[0])


ASKING = {
    "stalled": (48, _ask_and_read_nothing),
    "wrong": (8, _ask_for_what_is_refused),
    "cold": (COLD_READERS, _read_cold),
    "bombs": (4, _ask_for_bombs),
}
CROWDS = {"dribblers": (500, SLOW_HEAD), "silent": (1_000, b"")}
ABUSES = ("dribblers", "stalled", "silent", "wrong", "cold", "bombs")


def _request(path: str, media_type: str) -> bytes:
    return f"GET /v1/topics/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {media_type}\r\n\r\n".encode()


async def _answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


async def _ask(to: tuple[str, int], name: str) -> None:
    count, act = ASKING[name]

    async def connect() -> Streams:
        return await asyncio.open_connection(*to, local_addr=(ELSEWHERE, 0))

    working = asyncio.ensure_future(_forever(count, connect, act))
    await asyncio.sleep(SETTLED_S)
    os.write(1, b"begun\n")
    await working


def _abuse(address: str, name: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    if name in CROWDS:
        _crowd((host, int(port)), *CROWDS[name])
    asyncio.run(_ask((host, int(port)), name))


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    _abuse(*sys.argv[1:])
