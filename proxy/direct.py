"""Large transfers on a TCP socket without TLS. They bypass the asyncio transport, and copy nothing in this process.

An asyncio transport copies the bytes that a socket does not accept at once, and reads into a buffer of this process.
Between two sockets splice(2) moves the bytes within the kernel. Data of this process is written directly from its
memory. This module needs Linux. With TLS every byte has to pass through this process (`peer.py`).

During a transfer the kernel holds up to `PIPE` bytes, and the process up to four more descriptors. asyncio does not let
others wait for the descriptor of a transport, so a transfer has duplicates of it.
"""

from __future__ import annotations

import asyncio
import errno
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


class NoDescriptor(Exception):
    """The process or the system has no descriptor left. Nothing was transferred."""


class Direct:
    """A socket for one event loop, with one reading and one writing task."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection`` must be a non-blocking socket. It may be closed after `close`, not before."""
        self._fileno = connection.fileno()
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()
        self.took_at = 0.0
        """The time of the loop's clock when the socket last accepted bytes of `write`."""

    def close(self) -> None:
        """End all transfers: their tasks get Gone. Idempotent."""
        self._closed = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(Gone())

    async def write(self, data: memoryview) -> None:
        """Write all of ``data``. Raises Gone and NoDescriptor."""
        with self._descriptor() as fd:
            while data:
                if sent := self._at_once(os.write, fd, data):
                    data = data[sent:]
                    self.took_at = asyncio.get_running_loop().time()
                else:
                    await self._writable(fd)

    async def pass_on(self, size: int, to: Direct) -> None:
        """Pass the next ``size`` bytes that arrive here on to the socket ``to``.

        Raises Gone if either end closes, and NoDescriptor before any byte was passed.
        """
        with self._descriptor() as source, to._descriptor() as target, _pipe() as (leaves, enters):
            inside = 0
            while size or inside:
                if free := min(size, PIPE - inside):
                    received = self._at_once(os.splice, source, enters, free, None, None, FLAGS)
                    if received == 0:
                        raise Gone
                    if received:
                        size -= received
                        inside += received
                if not inside:
                    await self._readable(source)
                elif sent := to._at_once(os.splice, leaves, target, inside, None, None, FLAGS):
                    inside -= sent
                else:
                    await to._writable(target)

    @contextmanager
    def _descriptor(self) -> Iterator[int]:
        """Duplicate the socket's descriptor for one transfer. Raises Gone and NoDescriptor."""
        if self._closed:
            raise Gone
        with _no_descriptor():
            fd = os.dup(self._fileno)
        try:
            yield fd
        finally:
            os.close(fd)

    def _at_once(self, call: Callable[..., int], *arguments: Any) -> int | None:
        """Return the result of ``call``, or None if it would block. Raises Gone."""
        if self._closed:
            raise Gone
        try:
            return call(*arguments)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Gone from error

    async def _readable(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        await self._until(fd, loop.add_reader, loop.remove_reader)

    async def _writable(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        await self._until(fd, loop.add_writer, loop.remove_writer)

    async def _until(self, fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(ready)
        add(fd, _set, ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            remove(fd)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    with _no_descriptor():
        leaves, enters = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(PermissionError):  # the user's limit of pipe memory is reached: this pipe keeps its default size
            fcntl.fcntl(enters, fcntl.F_SETPIPE_SZ, PIPE)
        yield leaves, enters
    finally:
        os.close(leaves)
        os.close(enters)


@contextmanager
def _no_descriptor() -> Iterator[None]:
    """Raise NoDescriptor if the limit of descriptors is reached in this block."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise NoDescriptor from error
