"""Large transfers on a plain TCP socket, past its asyncio transport, without copies in this process.

A transport of asyncio copies the bytes that a socket does not accept at once, and reads into a buffer of ours. Between
two plain sockets splice(2) moves pages and no byte enters this process; our own data is written from where it is. Both
need Linux. With TLS every byte has to pass through this process (`peer.py` does that).

Memory of a transfer: `PIPE` bytes of the kernel's while it lasts.
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
    """A socket used by one event loop, with one reading and one writing task. It owns a descriptor: call `close`."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection`` must be a non-blocking socket."""
        self._fd = os.dup(connection.fileno())
        self._waiting: set[asyncio.Future[None]] = set()
        self.took_at = 0.0
        """When the other end last accepted written bytes, by the loop's clock."""

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
        """Pass the next ``size`` bytes that arrive to the other socket. Raises Gone if either end closes."""
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
        """Return the result of ``call``, or None if it would have to wait. Raises Gone."""
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
        with suppress(PermissionError):  # the user's share of pipe memory is used up: this pipe stays small
            fcntl.fcntl(enters, fcntl.F_SETPIPE_SZ, PIPE)
        yield leaves, enters
    finally:
        os.close(leaves)
        os.close(enters)
