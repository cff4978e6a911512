"""Tagged fields of flexible versions (KIP-482), and the brokers' addresses that some answers have in such a field.

Produce 10 and Fetch 16 name the new leader of a partition, and in ``NodeEndpoints``, a tagged field at the end of the
answer, the address of that leader's broker. A client must not get this address. The field keeps its length, so that an
answer can be streamed: it gets a tag that no version has, and every client skips unknown tags. The client then asks
for the metadata, as all clients do without that field.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..broker.wire import Frame

NODE_ENDPOINTS = 0
UNUSED_TAG = 100
"""No message of Kafka 4.3 has a field with this tag. It takes one byte, like `NODE_ENDPOINTS`."""


def tagged(frame: Frame, flexible: bool) -> Iterator[tuple[int, int, int]]:
    """Read the tagged fields of a flexible version. Yield tag, position and size of each. Raises Malformed."""
    for _ in range(frame.uvarint() if flexible else 0):
        tag, size = frame.uvarint(), frame.uvarint()
        yield tag, frame.skip(size), size


def hide_addresses(data: bytearray, at: int) -> None:
    """Rename ``NodeEndpoints`` among the tagged fields at ``at``, which end ``data``. Raises Malformed."""
    frame = Frame(data, at)
    for _ in range(frame.uvarint()):
        begin = frame.at
        tag, size = frame.uvarint(), frame.uvarint()
        frame.skip(size)
        if tag == NODE_ENDPOINTS:
            data[begin] = UNUSED_TAG
    frame.done()
