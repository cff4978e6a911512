"""Tagged fields of flexible versions (KIP-482), and the brokers' addresses that some answers have in such a field.

Produce 10 and Fetch 16 name the new leader of a partition, and in ``NodeEndpoints``, a tagged field at the end of the
answer, the address of that leader's broker. A client must not get this address. The field keeps its length, so that an
answer can be streamed: it gets a tag that no version has, and every client skips unknown tags. The client then asks
for the metadata, as all clients do without that field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..broker.wire import Frame

NODE_ENDPOINTS = 0
UNUSED_TAG = 100
"""No message of Kafka 4.3 has a field with this tag. It takes one byte, like `NODE_ENDPOINTS`."""


class Tagged(NamedTuple):
    """A tagged field: its tag, the position of the tag, and the position and size of its value."""

    tag: int
    at: int
    value_at: int
    size: int


def tagged(frame: Frame, flexible: bool) -> Iterator[Tagged]:
    """Read the tagged fields of a flexible version. Raises Malformed."""
    for _ in range(frame.uvarint() if flexible else 0):
        at, tag, size = frame.at, frame.uvarint(), frame.uvarint()
        yield Tagged(tag, at, frame.skip(size), size)


def hide_addresses(data: bytearray, at: int) -> None:
    """Rename ``NodeEndpoints`` among the tagged fields at ``at``, which end ``data``. Raises Malformed."""
    frame = Frame(data, at)
    for field in tagged(frame, True):
        if field.tag == NODE_ENDPOINTS:
            data[field.at] = UNUSED_TAG
    frame.done()
