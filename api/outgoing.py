"""What uvicorn writes an answer to: head, body and what ends it go out in one piece, from where they lie.

Small parts wait for what follows them in the same turn of the loop. Without TLS all goes to the socket itself, and what
it does not take at once is copied: a view would keep a whole chunk of the cache, that nobody counts, for a client who
may be slow. asyncio's transport would copy parts together first, or write each by itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

Part = bytes | bytearray | memoryview
SMALL_BYTES = 64 * 1024
"""From so many on nothing waits: what is given may be a view."""
MOST_PARTS = 1024
"""Of one write (IOV_MAX)."""


class BodyParts:
    """Of a body, in one message: ASGI has only bytes, that would have to be copied together. uvicorn and h11 ask for
    the length and nothing else.
    """

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts, self._size = parts, sum(map(len, parts))

    def __len__(self) -> int:
        return self._size


class Outgoing(asyncio.Transport):
    """``transport``: does all else, and has what the socket did not take. ``plain``: there is no TLS."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, plain: bool) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._socket: socket.socket | None = transport.get_extra_info("socket") if plain else None
        self._parts: list[Part] = []
        self._size = 0
        self._waiting: asyncio.Handle | None = None

    def write(self, data: Part | list[Part | BodyParts] | None) -> None:
        """One part or several, or none."""
        for part in data if isinstance(data, list) else [data]:
            if not part:
                continue
            if isinstance(part, BodyParts):
                self._parts += part.parts
                part.parts = ()  # whoever waits with the message has them no more
            else:
                self._parts.append(part)
            self._size += len(part)
        if self._size >= SMALL_BYTES:
            self.flush()
        elif self._parts and self._waiting is None:
            self._waiting = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """An answer is over: its last part waits for nothing, the next turn comes after all others' answers."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        parts, size, self._parts, self._size = self._parts, self._size, [], 0
        if not parts or self._transport.is_closing():
            return
        taken = 0
        if self._socket is not None and not self._transport.get_write_buffer_size():
            with suppress(OSError):  # it is full; or the transport finds out
                taken = os.writev(self._socket.fileno(), parts[:MOST_PARTS])
        if taken == size:
            return
        left = list[Part]()
        for part in parts:
            if taken < len(part):
                left.append(memoryview(part)[taken:] if taken else part)
            taken = max(0, taken - len(part))
        self._transport.write(b"".join(left))

    def close(self) -> None:
        """What was written goes, as far as the client takes it."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._size + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
