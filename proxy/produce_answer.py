"""Produce answers from version 10 on: the address of a partition's new leader is hidden from the client."""

from __future__ import annotations

import struct

from ..broker.wire import Frame
from .fetch_request import skip_topic
from .tagged_fields import hide_addresses

PRODUCE_WITH_ADDRESSES = 10
"""The first version whose tagged fields at the end may have addresses of brokers."""
_PARTITION = struct.Struct(">ihqqq")
"""Index, error, base offset, append time, log start."""


def without_addresses(body: bytes, version: int) -> bytearray:
    """Return the body of a Produce answer without the addresses of brokers. Raises Malformed."""
    patched = bytearray(body)
    frame = Frame(patched)
    for _ in range(frame.count(True)):
        skip_topic(frame, version, True)
        for _ in range(frame.count(True, _PARTITION.size)):
            frame.skip(_PARTITION.size)
            for _ in range(frame.count(True, 4)):  # records that made the broker refuse the batch
                frame.int32()
                frame.raw_string(True)
                frame.tags(True)
            frame.raw_string(True)  # error message
            frame.tags(True)
        frame.tags(True)
    frame.int32()  # throttle time
    hide_addresses(patched, frame.at)
    return patched
