"""A segment that is read from end to end is proven to be the one that was copied, though each batch of it is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..state.errors import CorruptData
from ..state.segment import RemoteSegment
from ..storage.crc32c import extended
from .piece import Fetched


class AnotherLog(CorruptData):
    """Each batch may be right, and none of them is to be believed."""


def require_its_log(segment: RemoteSegment, crc32c: int) -> None:
    """Raises AnotherLog where the plain log that was read is another."""
    if crc32c != segment.log_crc32c:
        raise AnotherLog(
            "the log is not the one that was copied: its CRC-32C is another",
            file=segment.object_key,
            expected=f"{segment.log_crc32c:08x}",
            found=f"{crc32c:08x}",
        )


def proven(pieces: Iterable[Fetched]) -> Iterator[Fetched]:
    """The pieces, as they follow each other. Raises AnotherLog in place of the last one of a segment whose log is
    another than the one that was copied."""
    segment: RemoteSegment | None = None
    """The one that is read from its start on, up to now."""
    crc32c = 0
    for piece in pieces:
        found = None if piece.read is None else piece.read.segment
        if found is not None and piece.offset == found.offsets.start:
            segment, crc32c = found, 0
        elif found != segment:
            segment = None
        if segment is not None:
            crc32c = extended(crc32c, piece.data)
            if piece.next_offset > segment.last_record_offset:
                require_its_log(segment, crc32c)
        yield piece
