"""Batches of a copied log come in the order in which they were written; whoever swapped chunks is found out.

A gap between two batches is legal (a topic that was compacted once), and what was left out looks like one. Encrypted
chunks of equal size can be swapped and still decrypt: the format binds a chunk to its segment, not to its place.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..log.batch import BatchHeader
from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..storage.segment.reader import SegmentReader

NO_OFFSET = 2**63 - 1
"""Greater than any."""


class BatchOrder:
    """Of one read. ``floor``: no offset below it may come, because everything below was read, or is in no batch here.
    ``end``: the segment's last offset; nothing may follow the batch that holds it.

    A segment of ours says with which offset each chunk begins, so a batch in another chunk than its own is found before
    anything of it is handed out. In a foreign segment it is found when the offsets go back.
    """

    def __init__(self, reader: SegmentReader, floor: Offset, end: Offset) -> None:
        block = reader.manifest.tierstate
        self._firsts = None if block is None else block.chunk_first_offsets
        self._chunk_bytes, self._file, self._floor = reader.manifest.chunks.chunk_bytes, reader.log.key, floor
        self._end, self._log_bytes = end, reader.plain_bytes

    def check(self, batch: BatchHeader) -> None:
        """Raises CorruptData for one that cannot follow the one before, or cannot begin in its chunk."""
        chunk, base = batch.position // self._chunk_bytes, batch.base_offset
        facts = {"file": self._file, "chunk": chunk, "position": batch.position, "offset": base}
        if base < self._floor:
            raise CorruptData("batch offsets do not increase", **facts, expected_from=self._floor)
        if batch.last_offset >= self._end and batch.position + batch.size_bytes < self._log_bytes:
            raise CorruptData("batches follow the last offset of the segment", **facts, last_offset=self._end)
        self._floor = Offset(batch.last_offset + 1)
        if self._firsts is None:
            return
        first = self._firsts[chunk]
        stop = next((each for each in self._firsts[chunk + 1 :] if each is not None), None)
        if first is None or base < first or (stop is not None and base >= stop):
            raise CorruptData("a batch lies in another chunk than its manifest says", **facts)

    def holds(
        self,
        positions: npt.NDArray[np.int64],
        bases: npt.NDArray[np.int64],
        lasts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> bool:
        """`check` of many batches at once. False when one of them may have to be refused: nothing is done then."""
        held = bases[0] >= self._floor and bool(
            np.all(bases[1:] > lasts[:-1]) and np.all((lasts < self._end) | (positions + sizes >= self._log_bytes))
        )
        if held and self._bounds is not None:
            firsts, stops = self._bounds
            chunks = positions // self._chunk_bytes
            held = bool(np.all(bases >= firsts[chunks]) and np.all(bases < stops[chunks]))
        if held:
            self._floor = Offset(int(lasts[-1]) + 1)
        return held

    @cached_property
    def _bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Of each chunk: the offset its first batch begins with, and the one that a later chunk's does."""
        if self._firsts is None:
            return None
        firsts = np.array([NO_OFFSET if each is None else each for each in self._firsts], np.int64)
        later = np.append(firsts[1:], NO_OFFSET)
        return firsts, np.minimum.accumulate(later[::-1])[::-1]
