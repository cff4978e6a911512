"""Large transfers on a TCP socket without TLS. They bypass the asyncio transport, and copy nothing in this process.

An asyncio transport copies the bytes that a socket does not accept at once, and reads into a buffer of this process.
Between two sockets splice(2) moves the bytes within the kernel. Data of this process is written directly from its
memory. This module needs Linux. With TLS every byte has to pass through this process (`peer.py`).

During a transfer the kernel holds up to `PIPE` bytes.
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
"""The most bytes in the pipe between two sockets."""


class Gone(Exception):
    """The connection was closed by either end, or failed."""


class Direct:
    """A socket for one event loop, with one reading and one writing task. It has its own descriptor: call `close`."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection`` must be a non-blocking socket."""
        self._fd = os.dup(connection.fileno())
        self._waiting: set[asyncio.Future[None]] = set()
        self.took_at = 0.0
        """The time of the loop's clock when the socket last accepted bytes of `write`."""

    def close(self) -> None:
        """Close the descriptor. Waiting tasks get Gone. Idempotent."""
        if self._fd >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        for future in self._waiting:
            if not future.done():
                future.set_exception(Gone())

    async def write(self, data: memoryview) -> None:
        """Write all of ``data``. Raises Gone."""
        while data:
            if sent := self._at_once(os.write, self._fd, data):
                data = data[sent:]
                self.took_at = asyncio.get_running_loop().time()
            else:
                await self._writable()

    async def pass_on(self, size: int, to: Direct) -> None:
        """Pass the next ``size`` bytes that arrive here on to the socket ``to``. Raises Gone if either end closes."""
        with _pipe() as (leaves, enters):
            inside = 0
            while size or inside:
                if free := min(size, PIPE - inside):
                    received = self._at_once(os.splice, self._fd, enters, free, None, None, FLAGS)
                    if received == 0:
                        raise Gone
                    if received:
                        size -= received
                        inside += received
                if not inside:
                    await self._readable()
                elif sent := to._at_once(os.splice, leaves, to._fd, inside, None, None, FLAGS):
                    inside -= sent
                else:
                    await to._writable()

    def _at_once(self, call: Callable[..., int], *arguments: Any) -> int | None:
        """Return the result of ``call``, or None if it would block. Raises Gone."""
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
        with suppress(PermissionError):  # the user's limit of pipe memory is reached: this pipe keeps its default size
            fcntl.fcntl(enters, fcntl.F_SETPIPE_SZ, PIPE)
        yield leaves, enters
    finally:
        os.close(leaves)
        os.close(enters)
