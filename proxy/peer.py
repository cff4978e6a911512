"""One end of a relayed connection: bytes in their order, with back-pressure both ways, and frames read from them.

The socket is read into one buffer, and what only passes is copied out of it once, in pieces of `PIPED` bytes: larger
ones would be given back to the system and asked for again each time, which costs more than the copying. (A view of the
buffer cannot be written: from Python 3.12 on, and with TLS, a transport keeps what it could not send at once.)

Memory of an end: its buffer of `HELD` bytes, and `WRITE_HIGH` and one piece that the other end's machine has not taken;
beside that only what a frame that must be looked into is allowed to have (`budget.py`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import cast

from .wire import Malformed

HELD = 256 * 1024
"""Bytes that came and were not taken: the buffer that the socket is read into."""
WRITE_HIGH = 256 * 1024
PIPED = 64 * 1024
"""Bytes moved at once from one end to the other."""
SMALL = 16 * 1024
"""Bytes that are rather copied than written by themselves."""
_LENGTH = struct.Struct(">i")
LARGEST_FRAME = 2**31 - 1


Part = bytes | bytearray | memoryview


class Gone(Exception):
    """The connection's other end closed it, or it broke."""


class Peer(asyncio.BufferedProtocol):
    """Of one loop. One task reads, and one writes."""

    def __init__(self) -> None:
        self._buffer = bytearray(HELD)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._over = False
        self._wakes: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._full = self._paused = False
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.received = self.sent = 0
        self._frame = 0

    # what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start:
            held = self.held
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.received += nbytes
        if self.held == HELD and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._over = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # what the relay calls

    async def frame(self) -> int | None:
        """Bytes of the frame that follows; None when the other end closed between two frames. Raises Malformed, Gone.

        What was not read of the frame before is an error of ours.
        """
        assert not self._frame, self._frame
        if not self.held:
            await self._more()
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
        """Of the other end, ``host:port``."""
        host, port = (self.transport.get_extra_info("peername") or ("unknown", 0))[:2]
        return f"{host}:{port}"

    @property
    def left(self) -> int:
        """Bytes of the frame that were not read."""
        return self._frame

    @property
    def held(self) -> int:
        """Bytes that came and were not taken."""
        return self._end - self._start

    async def exactly(self, size: int) -> bytes:
        """Of the frame. Raises Malformed beyond its end, Gone when it never comes."""
        if size > self._frame:
            raise Malformed("a frame ends too early", wanted=size, left=self._frame)
        if size <= self.held:
            return self._taken(size)
        parts = bytearray()
        while len(parts) < size:
            if not self.held:
                await self._more()
                if not self.held:
                    raise Gone
            parts += self._taken(min(self.held, size - len(parts)))
        return bytes(parts)

    async def pipe(self, size: int, to: Peer) -> None:
        """So many bytes of the frame as they are. Raises Gone, of either end."""
        if size > self._frame:
            raise Malformed("a frame ends too early", wanted=size, left=self._frame)
        while size:
            if not self.held:
                await self._more()
                if not self.held:
                    raise Gone
            part = self._taken(min(size, self.held, PIPED))
            size -= len(part)
            to.write(part)
            await to.drained()

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._view[self._start : self._start + size])
        self._took(size)
        return taken

    def _took(self, size: int) -> None:
        self._start += size
        self._frame -= size
        if self._start == self._end:
            self._start = self._end = 0
        if self._paused and self.held <= HELD // 2:
            self._paused = False
            self.transport.resume_reading()

    def write(self, part: Part) -> None:
        self.sent += len(part)
        self.transport.write(part)

    async def send(self, parts: Iterable[Part]) -> None:
        """Small ones together: each write is a packet, and with TLS a record. Raises Gone."""
        together = bytearray()
        for part in parts:
            if len(part) <= SMALL:
                together += part
                if len(together) <= HELD:
                    continue
                part = b""
            if together:
                self.write(together)
                together = bytearray()
            if part:
                self.write(part)
            await self.drained()
        if together:
            self.write(together)
        await self.drained()

    async def drained(self) -> None:
        """Raises Gone."""
        if self.transport.is_closing():
            raise Gone
        if self._full:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def close(self) -> None:
        """What was written is sent, as far as the other end takes it."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Now."""
        if self.transport is not None:
            self.transport.abort()

    async def _more(self) -> None:
        """Until something came, or nothing will."""
        if self._over:
            return
        self._wakes = asyncio.get_running_loop().create_future()
        try:
            await self._wakes
        finally:
            self._wakes = None

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)


def framed(parts: list[Part]) -> list[Part]:
    """With the length before them. Raises Malformed for more than a frame can have."""
    size = sum(len(part) for part in parts)
    if size > LARGEST_FRAME:
        raise Malformed("more than a frame can have", size=size)
    return [_LENGTH.pack(size), *parts]
