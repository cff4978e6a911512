"""Produce: hide the address of a partition's new leader in answers, and refuse the requests of a read-only proxy.

A read-only proxy reads each request to its end, and answers it. It must still offer Produce to clients: librdkafka
derives from its versions which record batches a broker supports. Other requests that write are not offered at all.
"""

from __future__ import annotations

import struct

from ..broker.wire import Frame, length_of
from .apis import APIS, Key
from .fetch_request import hide_addresses, skip_topic
from .peer import Peer, begun

CLUSTER_AUTHORIZATION_FAILED = 31
NO_ACKS = 0
_PARTITION = struct.Struct(">ihq")
_UNKNOWN = struct.pack(">q", -1)
_PIPED = 256 * 1024
PRODUCE_WITH_ADDRESSES = 10
"""The first version whose tagged fields at the end may have addresses of brokers."""
_ANSWERED = struct.Struct(">ihqqq")
"""Index, error, base offset, append time, log start."""


async def refused_produce(source: Peer, version: int, correlation: int) -> bytes | None:
    """Return the answer without its length, or None if the client expects no answer. Raises Malformed.

    ``source`` is positioned after the request's correlation id. Only the request's topics are kept in memory.
    """
    flexible = APIS[Key.PRODUCE].is_flexible(version)

    def read_header(frame: Frame) -> tuple[int, int]:
        frame.raw_string(False)  # client id
        frame.tags(flexible)
        frame.raw_string(flexible)  # transactional id
        acks, _timeout_ms = frame.int16(), frame.int32()
        return acks, frame.length(flexible, short=False)

    def read_topic(frame: Frame) -> tuple[bytes, int]:
        """Return the name or the id, as it is encoded."""
        begin = frame.at
        skip_topic(frame, version, flexible)
        return bytes(frame.data[begin : frame.at]), frame.length(flexible, short=False)

    def read_partition(frame: Frame) -> tuple[int, int]:
        return frame.int32(), frame.length(flexible, short=False)

    def read_end(frame: Frame) -> None:
        frame.tags(flexible)

    ends = b"\0" if flexible else b""
    (acks, count), _ = await begun(source, read_header)
    topics = []
    for _ in range(count):
        (topic, partition_count), _ = await begun(source, read_topic)
        partitions = []
        for _ in range(partition_count):
            (number, size), _ = await begun(source, read_partition)
            partitions.append(_refused(number, version, flexible) + ends)
            await _skip(source, size)
            await begun(source, read_end)
        await begun(source, read_end)
        answers = length_of(len(partitions), flexible) + b"".join(partitions) + ends
        topics.append(topic + answers)
    await begun(source, read_end)
    if acks == NO_ACKS:
        return None
    head = struct.pack(">i", correlation) + ends
    return head + length_of(len(topics), flexible) + b"".join(topics) + struct.pack(">i", 0) + ends


def _refused(partition: int, version: int, flexible: bool) -> bytes:
    answer = _PARTITION.pack(partition, CLUSTER_AUTHORIZATION_FAILED, -1) + _UNKNOWN  # offset, append time
    if version >= 5:
        answer += _UNKNOWN  # log start
    if version >= 8:
        answer += length_of(0, flexible) + (b"\0" if flexible else b"\xff\xff")  # no record errors, no message
    return answer


async def _skip(source: Peer, size: int) -> None:
    while size > 0:
        size -= len(await source.exactly(min(size, _PIPED)))


def without_addresses(body: bytes, version: int) -> bytearray:
    """Return the body of a Produce answer without the addresses of brokers. Raises Malformed."""
    patched = bytearray(body)
    frame = Frame(patched)
    for _ in range(frame.count(True)):
        skip_topic(frame, version, True)
        for _ in range(frame.count(True, _ANSWERED.size)):
            frame.skip(_ANSWERED.size)
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
