"""Read ``.snapshot``: the broker's state of each idempotent producer at an offset (``ProducerSnapshot.json`` v1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import google_crc32c

from ..state.errors import CorruptData

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
