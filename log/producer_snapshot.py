"""Read ``.snapshot``: the broker's state of each idempotent producer at an offset (``ProducerSnapshot.json`` v1)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import google_crc32c

from ..state.errors import CorruptData
from ..state.offsets import Offset

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The state of a producer. ``open_transaction_offset`` is -1 if no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    open_transaction_offset: int


def parse_producer_snapshot(data: bytes, source: str) -> list[ProducerEntry]:
    """Return the producers. Raises CorruptData for a version other than 1, a wrong CRC or a wrong length."""
    if len(data) < _HEAD.size:
        raise CorruptData("producer snapshot is cut off", file=source, bytes=len(data))
    version, crc, count = _HEAD.unpack_from(data)
    if version != 1:
        raise CorruptData("producer snapshot of an unknown version", file=source, version=version)
    if google_crc32c.value(data[6:]) != crc:
        raise CorruptData("producer snapshot CRC does not match", file=source)
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptData("producer snapshot has another length than it says", file=source, producers=count)
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


def format_open_transactions(opened: Mapping[int, Offset]) -> bytes:
    """Return a snapshot of only those producers that have a transaction open: producer id to its first offset.

    No batch of a producer is known besides that: sequence and offset are -1, as Kafka has them for an empty entry.
    """
    entries = b"".join(_ENTRY.pack(producer, -1, -1, -1, 0, -1, -1, first) for producer, first in opened.items())
    body = _HEAD.pack(1, 0, len(opened))[6:] + entries
    return _HEAD.pack(1, google_crc32c.value(body), len(opened))[:6] + body
