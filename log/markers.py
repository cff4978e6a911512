"""Transaction markers: control batches with one record, which states how the producer's transaction ended.

The record's key is ``version int16 ‖ type int16`` (Kafka's `ControlRecordType`).
"""

from __future__ import annotations

from ..state.errors import CorruptData
from .batch import HEADER_BYTES, BatchHeader

ABORT, COMMIT = 0, 1
"""Types from 2 on do not belong to transactions."""


def marker_type(batch: BatchHeader, data: bytes | memoryview, position: int = 0, *, source: str) -> int | None:
    """Return the type in a control batch's key, None if a cleaner removed the record. ``data`` begins at ``position``.

    A record is varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length, key, …
    Raises CorruptData naming ``source`` for a record that is cut off.
    """
    if not batch.record_count:
        return None
    at = batch.position - position + HEADER_BYTES
    stop = batch.position - position + batch.size_bytes
    for skipped in (0, 1, 0, 0):  # length; attributes and timestamp; offset; key length
        at += skipped
        while at < stop and data[at] & 0x80:
            at += 1
        at += 1
    if at + 4 > stop:
        raise CorruptData("control record is cut off", file=source, offset=batch.base_offset, position=batch.position)
    return int.from_bytes(data[at + 2 : at + 4], "big", signed=True)
