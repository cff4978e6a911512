"""Batches of a copied log come as they were written: none is missing, moved, or of another leader.

No CRC covers the base offset and the leader epoch of a batch, and swapped chunks are found here, too: encrypted
chunks of equal size can be swapped and still decrypt, for the format binds a chunk to its segment alone.
A gap between two batches is legal where a topic was compacted once, and where a transaction ended there is a marker
that is no record. A segment with a record for each of its offsets has neither, so each batch begins where the one
before ended. With which offset the first batch of each chunk begins, and where the last batch of all ends, is known of
every segment of ours.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..log.batch import BatchHeader
from ..state.errors import CorruptData
from ..state.offsets import Offset
from ..state.segment import RemoteSegment
from ..storage.segment.reader import SegmentReader

NO_OFFSET = 2**63 - 1
"""Greater than any."""
Numbers = npt.NDArray[np.int64]


class Misplaced(CorruptData):
    """A batch that cannot lie where it does. ``position`` is its place in the plain log."""


class BatchOrder:
    """Of one read of a segment. ``begin``: the offset with which its first batch begins, where that is known.

    A segment of ours says with which offset each chunk begins, so a batch in another chunk than its own is found before
    anything of it is handed out. In a foreign segment it is found when the offsets go back.
    """

    def __init__(self, reader: SegmentReader, segment: RemoteSegment, begin: Offset | None = None) -> None:
        block = reader.manifest.tierstate
        self._firsts = None if block is None else block.chunk_first_offsets
        self._chunk_bytes, self._file = reader.manifest.chunks.chunk_bytes, reader.log.key
        self._start, self._end, self._log_bytes = segment.offsets.start, segment.offsets.end, reader.plain_bytes
        self.has_gaps = segment.has_gaps
        self._last = segment.last_record_offset
        self._epochs = segment.leader_epochs
        self._floor, self._begin = self._start if begin is None else begin, begin
        self._chunk = -1
        """In which the batch before begins; -1: nobody looked at it."""

    def check(self, batch: BatchHeader) -> None:
        """Raise Misplaced for a batch that cannot follow the one before it, or cannot begin in its chunk."""
        chunk, base = batch.position // self._chunk_bytes, batch.base_offset
        facts = {"file": self._file, "chunk": chunk, "position": batch.position, "offset": base}
        if base < self._floor:
            raise Misplaced("batch offsets do not increase", **facts, expected_from=self._floor)
        begin = self._start if batch.position == 0 else self._begin
        if not self.has_gaps and begin is not None and base != begin:
            raise Misplaced("a batch does not begin where the one before ended", **facts, expected=begin)
        ends = batch.position + batch.size_bytes >= self._log_bytes
        if batch.last_offset >= self._end and not ends:
            raise Misplaced("batches follow the last offset of the segment", **facts, last_offset=self._end)
        if ends and batch.last_offset != self._last:
            raise Misplaced("the log does not end with the segment", **facts, last_offset=self._last)
        known, found = self._epochs.epoch_at(base), batch.partition_leader_epoch
        if found != known and (known is not None or found > self._epochs.entries[0].epoch):
            raise Misplaced("a batch is of another leader epoch than its segment", **facts, expected=known, found=found)
        self._floor = self._begin = Offset(batch.last_offset + 1)
        leads, self._chunk = batch.position == 0 or -1 < self._chunk < chunk, chunk
        if self._firsts is None:
            return
        first = self._firsts[chunk]
        stop = next((each for each in self._firsts[chunk + 1 :] if each is not None), None)
        if first is None or base < first or (leads and base != first) or (stop is not None and base >= stop):
            raise Misplaced("a batch lies in another chunk than its manifest says", **facts)

    def holds(self, positions: Numbers, bases: Numbers, lasts: Numbers, sizes: Numbers, epochs: Numbers) -> bool:
        """`check` of many batches at once. False when one of them may have to be refused: nothing is done then."""
        ends = positions + sizes >= self._log_bytes
        held = bases[0] >= self._floor and bool(np.all(bases[1:] > lasts[:-1]) and np.all((lasts < self._end) | ends))
        if held and not self.has_gaps:
            begin = self._start if positions[0] == 0 else bases[0] if self._begin is None else self._begin
            held = bool(bases[0] == begin and np.all(bases[1:] == lasts[:-1] + 1))
        held = held and bool(np.all((lasts == self._last) | ~ends)) and self._are_of_its_epochs(bases, epochs)
        chunks = positions // self._chunk_bytes
        if held and self._bounds is not None:
            firsts, stops = self._bounds
            held = bool(np.all(bases >= firsts[chunks]) and np.all(bases < stops[chunks]))
            before = np.append(-1 if positions[0] == 0 else chunks[0] if self._chunk < 0 else self._chunk, chunks[:-1])
            held = held and bool(np.all((bases == firsts[chunks]) | (chunks == before)))
        if held:
            self._floor = self._begin = Offset(int(lasts[-1]) + 1)
            self._chunk = int(chunks[-1])
        return held

    def _are_of_its_epochs(self, bases: Numbers, found: Numbers) -> bool:
        starts, epochs = self._lineage
        at = np.searchsorted(starts, bases, side="right") - 1
        return bool(np.all(np.where(at < 0, found <= epochs[0], found == epochs[at])))

    @cached_property
    def _lineage(self) -> tuple[Numbers, Numbers]:
        """Where each epoch begins, and each epoch."""
        entries = self._epochs.entries
        return np.array([each.start_offset for each in entries]), np.array([each.epoch for each in entries])

    @cached_property
    def _bounds(self) -> tuple[Numbers, Numbers] | None:
        """Of each chunk: the offset its first batch begins with, and the one that a later chunk's does."""
        if self._firsts is None:
            return None
        firsts = np.array([NO_OFFSET if each is None else each for each in self._firsts], np.int64)
        later = np.append(firsts[1:], NO_OFFSET)
        return firsts, np.minimum.accumulate(later[::-1])[::-1]
