"""Read and write ``.txnindex``: a segment's aborted transactions, 34 bytes each (Kafka's ``AbortedTxn``, version 0)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import AbortedRange

ENTRY = struct.Struct(">hqqqq")
"""Version, producer id, first offset, offset of the marker, last stable offset."""
ENTRY_BYTES = ENTRY.size


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """``range`` ends with the abort marker. ``last_stable_offset`` is the log's when that marker was appended."""

    range: AbortedRange
    last_stable_offset: Offset


def parse_transaction_index(data: bytes, source: str) -> list[AbortedTransaction]:
    """Return the entries in file order. Raises CorruptData."""
    if len(data) % ENTRY.size:
        raise CorruptData("transaction index is cut off", file=source, bytes=len(data))
    entries = []
    for number, (version, producer, first, last, stable) in enumerate(ENTRY.iter_unpack(data)):
        if version != 0:
            raise CorruptData(
                "transaction index entry of an unknown version",
                file=source,
                position=number * ENTRY.size,
                version=version,
            )
        if first < 0 or last < first:
            raise CorruptData("transaction index entry contradicts itself", file=source, position=number * ENTRY.size)
        entries.append(AbortedTransaction(AbortedRange(producer, Offset(first), Offset(last)), Offset(stable)))
    return entries


def format_transaction_index(entries: list[AbortedTransaction]) -> bytes:
    """Return the content of the file."""
    return b"".join(
        ENTRY.pack(0, e.range.producer_id, e.range.first, e.range.last, e.last_stable_offset) for e in entries
    )
