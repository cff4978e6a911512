"""Kafka's primitive types of a frame that is still arriving: what `wire.Frame` is for one that is here."""

from __future__ import annotations

import struct
from typing import Protocol

from ..broker.wire import Malformed

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
MOST_TEXT = 32_767


class Source(Protocol):
    """Bytes of the frame in order. Raises Malformed where it ends before that."""

    async def exactly(self, size: int) -> bytes: ...


class Arriving:
    """Everything goes through `take`. Raises Malformed."""

    def __init__(self, source: Source, *, flexible: bool) -> None:
        self.source, self.flexible = source, flexible

    async def take(self, size: int) -> bytes:
        return await self.source.exactly(size)

    async def int16(self) -> int:
        return int(_INT16.unpack(await self.take(2))[0])

    async def int32(self) -> int:
        return int(_INT32.unpack(await self.take(4))[0])

    async def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = (await self.take(1))[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed("a varint has no end")

    async def count(self) -> int:
        """Of an array, or of bytes; 0 for null."""
        return max(0, await self.varint() - 1 if self.flexible else await self.int32())

    async def text(self) -> bytes:
        """Empty for null."""
        size = await self.varint() - 1 if self.flexible else await self.int16()
        if not -1 <= size <= MOST_TEXT:
            raise Malformed("no length of a string", given=size)
        return await self.take(max(0, size))

    async def tags(self) -> None:
        if self.flexible:
            for _ in range(await self.varint()):
                await self.varint()
                await self.take(await self.varint())


class Kept(Arriving):
    """And everything that was read is kept: it goes on, as it is or changed."""

    def __init__(self, source: Source, *, flexible: bool, most: int | None = None) -> None:
        """``most``: bytes that are kept; what would be more is Malformed."""
        super().__init__(source, flexible=flexible)
        self.kept = bytearray()
        self._most = most

    async def take(self, size: int) -> bytes:
        if self._most is not None and len(self.kept) + size > self._most:
            raise Malformed("more than can be looked into", most=self._most)
        taken = await self.source.exactly(size)
        self.kept += taken
        return taken
