"""Produce requests that a read-only proxy refuses: read to their end, and answered in the broker's place.

Clients need the request to be offered: librdkafka takes from its versions which record batches a broker has. The other
requests that write are not offered at all.
"""

from __future__ import annotations

import struct

from ..broker.wire import length_of, string_of
from .apis import APIS, Key
from .arriving import Arriving, Source

CLUSTER_AUTHORIZATION_FAILED = 31
NO_ACKS = 0
_PARTITION = struct.Struct(">ihq")
_UNKNOWN = struct.pack(">q", -1)
_PIPED = 256 * 1024


async def refused_produce(source: Source, version: int, correlation: int) -> bytes | None:
    """The answer, without its length; None where none is waited for. ``source``: behind the request's correlation id.

    Of the request only its topics are kept. Raises Malformed.
    """
    flexible = APIS[Key.PRODUCE].is_flexible(version)
    header, body = Arriving(source, flexible=False), Arriving(source, flexible=flexible)
    await header.text()  # client id
    await body.tags()
    await body.text()  # transactional id
    acks = await body.int16()
    await body.int32()  # time-out
    ends = b"\0" if flexible else b""
    topics = []
    for _ in range(await body.count()):
        name, partitions = await body.text(), []
        for _ in range(await body.count()):
            partitions.append(_refused(await body.int32(), version, flexible) + ends)
            await _skip(body, await body.count())
            await body.tags()
        await body.tags()
        topics.append(string_of(name, flexible) + length_of(len(partitions), flexible) + b"".join(partitions) + ends)
    await body.tags()
    if acks == NO_ACKS:
        return None
    head = struct.pack(">i", correlation) + ends
    return head + length_of(len(topics), flexible) + b"".join(topics) + struct.pack(">i", 0) + ends


def _refused(partition: int, version: int, flexible: bool) -> bytes:
    said = _PARTITION.pack(partition, CLUSTER_AUTHORIZATION_FAILED, -1) + _UNKNOWN  # offset, append time
    if version >= 5:
        said += _UNKNOWN  # log start
    if version >= 8:
        said += length_of(0, flexible) + (b"\0" if flexible else b"\xff\xff")  # no record's error, no message
    return said


async def _skip(body: Arriving, size: int) -> None:
    while size:
        size -= len(await body.take(min(size, _PIPED)))
