"""Reads, skips and writes Kafka's primitive types in one frame.

``flexible`` versions of an API have compact strings and arrays (length + 1 as an unsigned varint) and tagged fields
(KIP-482). Nothing is read beyond the frame, and a count that the rest of the frame cannot hold is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..state.errors import InvalidRequest

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))
_LONGEST_VARINT = 5
"""Bytes of an unsigned varint of 32 bits."""


class Malformed(InvalidRequest):
    """A frame that breaks Kafka's protocol. The connection that delivered the frame is closed."""


class Frame:
    """A frame, and the position ``at`` of the next read. ``data`` is without the four bytes of length."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        self.data, self.at, self.end = data, at, len(data)

    def skip(self, size: int) -> int:
        """Skip ``size`` bytes and return the position before them. Raises Malformed if the frame has fewer."""
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
        if at < self.end and (byte := self.data[at]) < 0x80:  # nearly all varints have one byte
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
        """Read the length of a string (``short``: two bytes if not flexible) or of bytes; -1 for null."""
        if flexible:
            return self.uvarint() - 1
        size = self.int16() if short else self.int32()
        if size < -1:
            raise Malformed("a negative length", position=self.at, given=size)
        return size

    def raw_string(self, flexible: bool) -> bytes | None:
        """Read a string as its bytes; None for null."""
        size = self.length(flexible, short=True)
        if size < 0:
            return None
        at = self.skip(size)
        return bytes(self.data[at : at + size])

    def string(self, flexible: bool) -> str:
        """Read a string; empty for null. Bytes that are not UTF-8 are replaced, because no valid name has them."""
        return (self.raw_string(flexible) or b"").decode("utf-8", "replace")

    def count(self, flexible: bool, smallest: int = 1) -> int:
        """Read the length of an array whose elements have at least ``smallest`` bytes; 0 for null."""
        number = self.uvarint() - 1 if flexible else self.int32()
        if number > (self.end - self.at) // smallest:
            raise Malformed("more elements than the frame can hold", position=self.at, given=number)
        return max(0, number)

    def tags(self, flexible: bool) -> None:
        """Skip the tagged fields of a flexible version."""
        if not flexible:
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())

    def partitions(self, flexible: bool, smallest: int) -> Iterator[str]:
        """Read an array of topics that have arrays of partitions. Yield the topic of each partition, whose fields up to
        its tagged ones the caller reads: at least ``smallest`` bytes.
        """
        for _ in range(self.count(flexible, 3)):
            topic = self.string(flexible)
            for _ in range(self.count(flexible, smallest)):
                yield topic
                self.tags(flexible)
            self.tags(flexible)

    def ends(self, flexible: bool) -> None:
        """Skip the last tagged fields. Raises Malformed if the frame has unread bytes."""
        self.tags(flexible)
        self.done()

    def done(self) -> None:
        """Raise Malformed if the frame has unread bytes."""
        if self.at != self.end:
            raise Malformed("a frame has more than its version says", position=self.at, length=self.end)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint. ``value``: 0 to 2**32 - 1."""
    varint = bytearray()
    while value >= 0x80:
        varint.append(value & 0x7F | 0x80)
        value >>= 7
    varint.append(value)
    return bytes(varint)


def length_of(size: int, flexible: bool) -> bytes:
    """Encode the length of bytes or of an array of this size."""
    return uvarint(size + 1) if flexible else _INT32.pack(size)


def string_of(text: bytes, flexible: bool) -> bytes:
    return (uvarint(len(text) + 1) if flexible else _INT16.pack(len(text))) + text
