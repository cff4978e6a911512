"""Prove that a segment read from end to end is the segment that was copied: correct batches alone do not prove that."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ..log.batch import iter_batches
from ..state.errors import CorruptData
from ..state.object_keys import ObjectKind, object_key
from ..state.segment import RemoteSegment
from ..storage.crc32c import extended
from .piece import Fetched


class AnotherLog(CorruptData):
    """The log is another one. Each batch may be correct, but none of them can be trusted."""


def another_log(segment: RemoteSegment, crc32c: int) -> AnotherLog:
    """Return the error of a segment whose plain log has this CRC-32C."""
    return AnotherLog(
        "the log is not the one that was copied: its CRC-32C is another",
        file=object_key(segment.object_key, ObjectKind.LOG),
        expected=f"{segment.log_crc32c:08x}",
        found=f"{crc32c:08x}",
    )


def is_right(data: bytes | memoryview, source: str) -> bool:
    """Return whether each of these complete batches is right by itself."""
    with suppress(CorruptData):
        deque(iter_batches(data, source=source), 0)
        return True
    return False


def proven(pieces: Iterable[Fetched]) -> Iterator[Fetched]:
    """Yield the pieces. Raises AnotherLog in place of a segment's last piece if its log is not the one that was copied.
    If a batch of this piece is wrong by itself, the piece is yielded, because the decoder reports the wrong batch."""
    segment: RemoteSegment | None = None
    """The segment that has been read from its start on so far."""
    crc32c = 0
    for piece in pieces:
        current = None if piece.read is None else piece.read.segment
        if current is not None and current.described and piece.offset == current.offsets.start:
            segment, crc32c = current, 0
        elif current != segment:
            segment = None
        if segment is not None:
            crc32c = extended(crc32c, piece.data)
            if piece.next_offset > segment.last_record_offset and crc32c != segment.log_crc32c:
                if is_right(piece.data, segment.object_key):
                    raise another_log(segment, crc32c)
                segment = None
        yield piece
