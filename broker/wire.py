"""Kafka's primitive types in one frame: read at a place, skipped, or written.

``flexible`` versions of an API have compact strings and arrays (length + 1 as an unsigned varint) and tagged fields
(KIP-482). Nothing is taken from beyond the frame, and no count is believed that the rest of the frame cannot hold.
"""

from __future__ import annotations

import struct

from ..state.errors import InvalidRequest

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))
_LONGEST_VARINT = 5
"""Bytes of an unsigned varint of 32 bits."""


class Malformed(InvalidRequest):
    """A frame that is none of Kafka's. The connection it came on is closed."""


class Frame:
    """A place in a frame that moves on as it is read. ``data``: without the four bytes of length."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        self.data, self.at, self.end = data, at, len(data)

    def skip(self, size: int) -> int:
        """Where it was."""
        at = self.at
        if size < 0 or size > self.end - at:
            raise Malformed("a frame ends too early", position=at, wanted=size, length=self.end)
        self.at = at + size
        return at

    def int8(self) -> int:
        return int(_INT8.unpack_from(self.data, self.skip(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack_from(self.data, self.skip(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self.data, self.skip(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack_from(self.data, self.skip(8))[0])

    def uvarint(self) -> int:
        at = self.at
        if at < self.end and (byte := self.data[at]) < 0x80:  # nearly all are short
            self.at = at + 1
            return byte
        byte = self.data[self.skip(1)]
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift == 7 * _LONGEST_VARINT:
                raise Malformed("a varint has no end", position=self.at)
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << shift
            shift += 7
        return value

    def length(self, flexible: bool, short: bool) -> int:
        """Of a string (``short``: its plain form has two bytes) or of bytes; -1 for null."""
        if flexible:
            return self.uvarint() - 1
        size = self.int16() if short else self.int32()
        if size < -1:
            raise Malformed("a negative length", position=self.at, given=size)
        return size

    def raw_string(self, flexible: bool) -> bytes | None:
        """As it stands."""
        size = self.length(flexible, short=True)
        if size < 0:
            return None
        at = self.skip(size)
        return bytes(self.data[at : at + size])

    def string(self, flexible: bool) -> str:
        """Empty for null. What is no UTF-8 is replaced: such a name names nothing."""
        return (self.raw_string(flexible) or b"").decode("utf-8", "replace")

    def count(self, flexible: bool, smallest: int = 1) -> int:
        """Of an array whose elements have at least ``smallest`` bytes; 0 for null."""
        number = self.uvarint() - 1 if flexible else self.int32()
        if number > (self.end - self.at) // smallest:
            raise Malformed("more elements than the frame can hold", position=self.at, given=number)
        return max(0, number)

    def tags(self, flexible: bool) -> None:
        """Skips tagged fields."""
        if not flexible:
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())

    def done(self) -> None:
        """Raises Malformed when something is left."""
        if self.at != self.end:
            raise Malformed("a frame has more than its version says", position=self.at, length=self.end)


def uvarint(value: int) -> bytes:
    """As Kafka writes it. ``value``: 0 to 2**32 - 1."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def length_of(size: int, flexible: bool) -> bytes:
    """Of bytes or an array of this size."""
    return uvarint(size + 1) if flexible else _INT32.pack(size)


def string_of(text: bytes, flexible: bool) -> bytes:
    return (uvarint(len(text) + 1) if flexible else _INT16.pack(len(text))) + text
