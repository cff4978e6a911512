"""A piece of a log as bytes, which its reader decodes in the way that costs it less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .record_parser import Record, parse_records

if TYPE_CHECKING:
    from .record_block import RecordBlock


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Complete batches that begin at byte ``position`` of ``source``. Records in ``aborted`` ranges (None: no ranges)
    and records from the offset ``end`` on are hidden."""

    source: str
    position: int
    data: bytes
    aborted: tuple[AbortedRange, ...] | None
    end: Offset | None

    def records(self) -> Iterator[Record]:
        """Yield the records one by one, without numba. Raises CorruptData."""
        return parse_records(self.data, source=self.source, position=self.position, aborted=self.aborted, end=self.end)

    def blocks(self, start: int = 0) -> Iterator[RecordBlock]:
        """Yield blocks of the records from the offset ``start`` on, with compiled kernels. Raises CorruptData."""
        from .decode import decode_records

        return decode_records(
            self.data, source=self.source, position=self.position, aborted=self.aborted, start=start, end=self.end
        )
