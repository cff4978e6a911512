"""Fields of Kafka's flexible messages (KIP-482), for the requests that kafka-python does not know."""

from __future__ import annotations

from ..state.errors import CorruptData


def compact(text: str) -> bytes:
    """A compact string."""
    data = text.encode()
    return _varint(len(data) + 1) + data


def read_compact(data: memoryview, at: int) -> tuple[bytes, int]:
    """A compact string or bytes (null: empty), and where the next field begins."""
    size = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
    except IndexError:
        raise CorruptData("the broker's answer ends inside a field") from None
    stop = at + max(0, size - 1)
    if stop > len(data):
        raise CorruptData("the broker's answer ends inside a field")
    return bytes(data[at:stop]), stop


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
