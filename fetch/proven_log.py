"""Prove that a segment read from end to end is the one that was copied: correct batches alone do not prove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..state.errors import CorruptData
from ..state.segment import RemoteSegment
from ..storage.crc32c import extended
from .piece import Fetched


class AnotherLog(CorruptData):
    """The log is another one. Each batch may be correct, but none of them can be trusted."""


def require_its_log(segment: RemoteSegment, crc32c: int) -> None:
    """Raises AnotherLog if the plain log that was read is not the segment's."""
    if crc32c != segment.log_crc32c:
        raise AnotherLog(
            "the log is not the one that was copied: its CRC-32C is another",
            file=segment.object_key,
            expected=f"{segment.log_crc32c:08x}",
            found=f"{crc32c:08x}",
        )


def proven(pieces: Iterable[Fetched]) -> Iterator[Fetched]:
    """Yield the pieces in their order. Raises AnotherLog in place of the last piece of a segment whose log is not the
    one that was copied."""
    segment: RemoteSegment | None = None
    """The segment that has been read from its start on so far."""
    crc32c = 0
    for piece in pieces:
        current = None if piece.read is None else piece.read.segment
        if current is not None and piece.offset == current.offsets.start:
            segment, crc32c = current, 0
        elif current != segment:
            segment = None
        if segment is not None:
            crc32c = extended(crc32c, piece.data)
            if piece.next_offset > segment.last_record_offset:
                require_its_log(segment, crc32c)
        yield piece
