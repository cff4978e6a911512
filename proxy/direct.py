"""A plain TCP socket past its transport, for what is large: the kernel moves it, or takes it from where it lies.

A transport of asyncio copies what a socket does not take at once, and reads into a buffer of ours. Between two plain
sockets splice(2) moves pages from one to the other and no byte comes into this process; what is ours is written from
where it is. Both need Linux; with TLS every byte has to come through our hands (`peer.py` does that).

Memory of a passage: `PIPE` bytes of the kernel's while it lasts.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

AVAILABLE = hasattr(os, "splice")
FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if AVAILABLE else 0
PIPE = 256 * 1024
"""Bytes on their way between two sockets."""


class Gone(Exception):
    """The connection's other end closed it, or it broke."""


class Direct:
    """Of one loop. One task reads, and one writes. It has a descriptor of its own, that `close` gives back."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection``: does not block."""
        self._fd = os.dup(connection.fileno())
        self._waiting: set[asyncio.Future[None]] = set()
        self.took_at = 0.0
        """When the other end took any of what was written, by the loop's clock."""

    def close(self) -> None:
        """Idempotent. Who waits gets Gone."""
        if self._fd >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        for each in self._waiting:
            if not each.done():
                each.set_exception(Gone())

    async def write(self, data: memoryview) -> None:
        """All of it. Raises Gone."""
        while data:
            if sent := self._at_once(os.write, self._fd, data):
                data = data[sent:]
                self.took_at = asyncio.get_running_loop().time()
            else:
                await self._writable()

    async def pass_on(self, size: int, to: Direct) -> None:
        """So many bytes that come. Raises Gone, of either end."""
        with _pipe() as (leaves, enters):
            inside = 0
            while size or inside:
                if room := min(size, PIPE - inside):
                    came = self._at_once(os.splice, self._fd, enters, room, None, None, FLAGS)
                    if came == 0:
                        raise Gone
                    if came:
                        size -= came
                        inside += came
                if not inside:
                    await self._readable()
                elif went := to._at_once(os.splice, leaves, to._fd, inside, None, None, FLAGS):
                    inside -= went
                else:
                    await to._writable()

    def _at_once(self, call: Callable[..., int], *arguments: Any) -> int | None:
        """None where it would have to wait. Raises Gone."""
        if self._fd < 0:
            raise Gone
        try:
            return call(*arguments)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Gone from error

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._until(loop.add_reader, loop.remove_reader)

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._until(loop.add_writer, loop.remove_writer)

    async def _until(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(ready)
        add(self._fd, _set, ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if self._fd >= 0:
                remove(self._fd)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    leaves, enters = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(PermissionError):  # the user's share of pipes is used up: it stays a small one
            fcntl.fcntl(enters, fcntl.F_SETPIPE_SZ, PIPE)
        yield leaves, enters
    finally:
        os.close(leaves)
        os.close(enters)
