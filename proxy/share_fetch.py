"""Share groups (KIP-932): ShareFetch and ShareAcknowledge. They read from the broker alone.

Their answers have the addresses of brokers after the records, so a ShareFetch answer is held whole. ``max_bytes`` of
the request is lowered for this. Message definitions: Apache Kafka 4.3, ``ShareFetchRequest.json`` and following.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..broker.wire import Frame
from .fetch_request import HELD_BYTES, UUID_BYTES

_INT32 = struct.Struct(">i")
_ACQUIRED = struct.Struct(">qqh")


class ShareRead(NamedTuple):
    """Records of one partition in a ShareFetch answer. ``offset``: the first acquired record; -1 if there is none."""

    topic_id: bytes
    partition: int
    offset: int
    size: int


def lower_share_fetch(data: bytearray, at: int) -> None:
    """Lower ``max_bytes`` in the ShareFetch request whose body begins at ``at``. Raises Malformed."""
    frame = Frame(data, at)
    frame.raw_string(True)  # group
    frame.raw_string(True)  # member
    frame.skip(3 * _INT32.size)  # epoch of the session, max wait, min bytes
    position = frame.at
    if frame.int32() > HELD_BYTES:
        _INT32.pack_into(data, position, HELD_BYTES)


def share_reads(frame: Frame) -> Iterator[ShareRead]:
    """Read a ShareFetch answer up to the brokers' addresses. Yield its partitions. Raises Malformed."""
    _begin(frame)
    frame.int32()  # time-out of the acquired records
    for topic_id, partition in _partitions(frame):
        for _ in range(2):  # of the fetch, and of the acknowledgement
            frame.int16()
            frame.raw_string(True)  # error message
        _leader(frame)
        size = max(0, frame.length(True, short=False))
        frame.skip(size)
        first = -1
        for number in range(frame.count(True, _ACQUIRED.size)):
            acquired = _ACQUIRED.unpack_from(frame.data, frame.skip(_ACQUIRED.size))
            first = first if number else acquired[0]
            frame.tags(True)
        yield ShareRead(topic_id, partition, first, size)


def skip_acknowledged(frame: Frame, version: int) -> None:
    """Read a ShareAcknowledge answer up to the brokers' addresses. Raises Malformed."""
    _begin(frame)
    if version >= 2:
        frame.int32()  # time-out of the acquired records
    for _ in _partitions(frame):
        frame.int16()
        frame.raw_string(True)  # error message
        _leader(frame)


def _begin(frame: Frame) -> None:
    frame.int32()  # throttle time
    frame.int16()
    frame.raw_string(True)  # error message


def _partitions(frame: Frame) -> Iterator[tuple[bytes, int]]:
    """Yield topic id and number of each partition. The caller reads the fields between its number and its tags."""
    for _ in range(frame.count(True, UUID_BYTES)):
        begin = frame.skip(UUID_BYTES)
        topic_id = bytes(frame.data[begin : frame.at])
        for _ in range(frame.count(True, _INT32.size)):
            yield topic_id, frame.int32()
            frame.tags(True)
        frame.tags(True)


def _leader(frame: Frame) -> None:
    frame.skip(2 * _INT32.size)  # id and epoch
    frame.tags(True)
