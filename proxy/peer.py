"""One of the two connections of a relay, to the client or to the broker. Frames are read with back-pressure.

The socket is read into one buffer, which fills up while no data is requested. Small writes are combined, because each
write is a packet, and with TLS a record. If both connections are without TLS, large data that only passes through does
not go through this class (`direct.py`). With TLS it is copied out of the buffer in pieces of `PIPED` bytes. Larger
pieces would be allocated and freed each time, which costs more than the copy. (A view of the buffer cannot be written,
because a transport keeps data that it could not send at once.)

A connection holds its buffer (`SMALL` or `HELD` bytes), one piece, and `WRITE_HIGH` bytes that the remote host has not
accepted. A frame that is parsed takes memory from the common budget (`budget.py`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar, cast

from ..broker.wire import Frame, Malformed
from .direct import AVAILABLE, Direct, Gone, NoDescriptor

HELD = 256 * 1024
"""The size of the buffer while more than `SMALL` bytes are requested."""
WRITE_HIGH = 64 * 1024
PIPED = 64 * 1024
"""The most bytes copied in one step from one connection to the other."""
SMALL = 16 * 1024
"""The size of the buffer before a frame's size is known. Parts up to this size are combined into one write."""
_LENGTH = struct.Struct(">i")
LARGEST_FRAME = 2**31 - 1
MOST = 256 * 1024
"""The most bytes of a frame's beginning that one parse may need. The longest one is the list of a cluster's brokers."""
R = TypeVar("R")


Part = bytes | bytearray | memoryview


class Peer(asyncio.BufferedProtocol):
    """One connection, used by one event loop. One task reads, and one writes."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(SMALL))
        self._start = self._end = 0
        self._over = False
        self._wakes: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._full = self._paused = False
        self._together = bytearray()
        self._direct: Direct | None = None
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self._frame = 0
        self._took_at = 0.0

    # called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plain = AVAILABLE and transport.get_extra_info("sslcontext") is None
        self._direct = Direct(transport.get_extra_info("socket")) if plain else None
        # only a transport that buffers nothing after `flush` can be bypassed
        self.transport.set_write_buffer_limits(high=0 if plain else WRITE_HIGH)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start:
            held = self.held
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self.held == len(self._view) and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._over = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        if self._direct is not None:
            self._direct.close()
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # called by the relay

    async def frame(self) -> int | None:
        """Return the size of the next frame, or None if the other end closed between frames. Raises Malformed and Gone.

        The previous frame must have been read to its end.
        """
        assert not self._frame, self._frame
        if not self.held:
            await self._more(SMALL)
            if not self.held:
                return None
        self._frame = 4
        size = int(_LENGTH.unpack(await self.exactly(4))[0])
        if size < 4:
            raise Malformed("no length of a frame", given=size)
        self._frame = size
        return size

    @property
    def address(self) -> str:
        """Return the address of the other end, ``host:port``."""
        host, port = (self.transport.get_extra_info("peername") or ("unknown", 0))[:2]
        return f"{host}:{port}"

    @property
    def left(self) -> int:
        """Return the number of bytes of the current frame that were not taken yet."""
        return self._frame

    @property
    def held(self) -> int:
        """Return the number of bytes in the buffer: they arrived and were not taken yet."""
        return self._end - self._start

    def at_hand(self) -> memoryview:
        """Return the buffered bytes of the current frame. The view is valid until the next wait."""
        return self._view[self._start : min(self._end, self._start + self._frame)]

    def taken(self, size: int) -> bytes:
        """Take and return the first ``size`` bytes of `at_hand`."""
        taken = bytes(self._view[self._start : self._start + size])
        self._took(size)
        return taken

    async def more(self) -> None:
        """Wait until more of the frame is in the buffer, which has `HELD` bytes. Raises Gone."""
        held = self.held
        await self._more(HELD)
        if self.held == held:
            raise Gone

    async def exactly(self, size: int) -> bytes:
        """Take and return ``size`` bytes. Raises Malformed if the frame has fewer, and Gone if they never arrive."""
        if size > self._frame:
            raise Malformed("a frame ends too early", wanted=size, left=self._frame)
        if size <= self.held:
            return self.taken(size)
        parts = bytearray()
        while len(parts) < size:
            if not self.held:
                await self._more(size - len(parts))
                if not self.held:
                    raise Gone
            parts += self.taken(min(self.held, size - len(parts)))
        return bytes(parts)

    async def pipe(self, size: int, to: Peer) -> None:
        """Pass ``size`` bytes of the frame to ``to``, after earlier writes to it. Raises Gone and Malformed."""
        if size > self._frame:
            raise Malformed("a frame ends too early", wanted=size, left=self._frame)
        while size:
            if not self.held:
                if self._direct is not None and to._direct is not None and size > SMALL:
                    await to.flush()
                    with suppress(NoDescriptor):
                        await self._pass_on(self._direct, size, to)
                        return
                await self._more(size)
                if not self.held:
                    raise Gone
            part = self.taken(min(size, self.held, PIPED))
            size -= len(part)
            to.write(part)
            if len(to._together) > SMALL:
                await to.flush()

    async def _pass_on(self, direct: Direct, size: int, to: Peer) -> None:
        assert to._direct is not None
        self.transport.pause_reading()
        try:
            await direct.pass_on(size, to._direct)
        finally:
            self.transport.resume_reading()
        self._frame -= size

    def _took(self, size: int) -> None:
        self._start += size
        self._frame -= size
        if self._start == self._end:
            self._start = self._end = 0
        if self._paused and self.held <= len(self._view) // 2:
            self._go_on()

    def _go_on(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def write(self, part: Part) -> None:
        """Append a small part to the bytes that the next `flush` sends, without sending it."""
        self._together += part

    async def flush(self) -> None:
        """Send all written bytes. Waits until the transport accepts more. Raises Gone."""
        if self.transport.is_closing():
            raise Gone
        if self._together:
            together, self._together = self._together, bytearray()
            self.transport.write(together)
        if self._full:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    @property
    def stalled_s(self) -> float:
        """Return the seconds since the remote host last accepted bytes of a `send`."""
        took_at = self._took_at if self._direct is None else max(self._took_at, self._direct.took_at)
        return asyncio.get_running_loop().time() - took_at

    async def send(self, parts: Iterable[Part]) -> None:
        """Send all of ``parts``. Raises Gone."""
        time = asyncio.get_running_loop().time
        self._took_at = time()
        for part in parts:
            if len(part) <= SMALL:
                self.write(part)
                if len(self._together) > SMALL:
                    await self.flush()
                continue
            await self.flush()
            whole = memoryview(part)
            if self._direct is not None:
                with suppress(NoDescriptor):
                    await self._direct.write(whole)
                    continue
            for at in range(0, len(whole), PIPED):
                self.write(whole[at : at + PIPED])
                await self.flush()
                self._took_at = time()
        await self.flush()

    def close(self) -> None:
        """Close the connection. The transport first tries to send its buffered bytes."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection at once. Unsent bytes are discarded."""
        if self.transport is not None:
            self.transport.abort()

    async def _more(self, byte_count: int) -> None:
        """Wait until bytes have arrived or the connection has ended. Resizes the buffer for ``byte_count`` bytes."""
        if self._over:
            return
        size = HELD if byte_count > SMALL else SMALL
        if size != len(self._view):
            view = memoryview(bytearray(size))
            view[: self.held] = self._view[self._start : self._end]
            self._view, self._start, self._end = view, 0, self.held
        self._go_on()
        self._wakes = asyncio.get_running_loop().create_future()
        try:
            await self._wakes
        finally:
            self._wakes = None

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)


def framed(parts: list[Part]) -> list[Part]:
    """Return ``parts`` with their total length before them. Raises Malformed if this is too large for a frame."""
    size = sum(len(part) for part in parts)
    if size > LARGEST_FRAME:
        raise Malformed("more than a frame can have", size=size)
    return [_LENGTH.pack(size), *parts]


async def begun(source: Peer, read: Callable[[Frame], R]) -> tuple[R, bytes]:
    """Return the result of ``read``, and the bytes that it read. These bytes are taken from ``source``.

    The bytes of the frame that have arrived are parsed. If they are too few, parsing starts again after more bytes have
    arrived. The first attempt nearly always succeeds. Waiting for each field separately would cost several times more.

    ``read`` may be called several times. Raises Malformed if ``read`` does with the complete frame, or `MOST` bytes.
    """
    while True:
        frame = Frame(source.at_hand())
        try:
            result = read(frame)
        except Malformed:
            if frame.end >= min(source.left, MOST):
                raise
            await source.more()
        else:
            return result, source.taken(frame.at)
