"""Finds one record of the tier-state topic in a broker's answer to a Fetch."""

from __future__ import annotations

from kafka.errors import UnsupportedCodecError
from kafka.record.memory_records import MemoryRecords

from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor
from .tier_reader import key_text


def anchor_in(batches: bytes, position: Position) -> Anchor | None:
    """Return the anchor of the record at ``position`` in complete batches. Returns None if there is no such record.

    Also returns None for a foreign record whose codec is not installed. tierstate's records are not compressed.
    """
    records = MemoryRecords(batches)
    try:
        while (batch := records.next_batch()) is not None:
            if batch.last_offset < position:
                continue
            for record in batch:
                if record.offset == position:
                    return Anchor.of(position, TimestampMs(record.timestamp), key_text(record.key), record.value)
                if record.offset > position:
                    return None
    except UnsupportedCodecError:
        return None
    return None
