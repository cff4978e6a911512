"""Check that the batches of a copied log are in the order written: none is missing, moved, or of another leader epoch.

No CRC covers a batch's base offset and leader epoch. Encrypted chunks of equal size can be swapped and still decrypt,
because the format binds a chunk to its segment, not to its position. These checks find swapped chunks, too.

A gap between two batches is legal if the topic was compacted at some time. A transaction ends with a marker, which has
an offset but is no record. A segment with a record for each of its offsets has neither gaps nor markers: each batch
begins where the previous batch ended. A segment written by tierstate records the first batch offset of each chunk. Its
fact records the last offset of the last batch, which Kafka's own records (KIP-405) lack.
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
"""An offset greater than any real one."""
Numbers = npt.NDArray[np.int64]


class Misplaced(CorruptData):
    """A batch is in a wrong place. The fact ``position`` is its first byte in the plain log."""


class BatchOrder:
    """The checks of one read of a segment. ``begin``: the offset where the read's first batch begins, if it is known.

    In a segment written by tierstate, a batch in the wrong chunk is found before any of its bytes is returned. In a
    foreign segment, it is found only when the offsets decrease.
    """

    def __init__(self, reader: SegmentReader, segment: RemoteSegment, begin: Offset | None = None) -> None:
        block = reader.manifest.tierstate
        self._firsts = None if block is None else block.chunk_first_offsets
        self._chunk_bytes, self._file = reader.manifest.chunks.chunk_bytes, reader.log.key
        self._start, self._end, self._log_bytes = segment.offsets.start, segment.offsets.end, reader.plain_bytes
        self.has_gaps = segment.has_gaps
        self._last = segment.last_record_offset if segment.described else None
        self._epochs = segment.leader_epochs
        self._floor, self._begin = self._start if begin is None else begin, begin
        self._chunk = -1
        """The chunk in which the last checked batch begins; -1: no batch was checked yet."""

    def check(self, batch: BatchHeader) -> None:
        """Check the next batch. Raises Misplaced if it cannot follow the previous batch, or cannot be in this place."""
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
        if ends and self._last is not None and batch.last_offset != self._last:
            raise Misplaced("the log does not end with the segment", **facts, last_offset=self._last)
        expected, epoch = self._epochs.epoch_at(base), batch.partition_leader_epoch
        if epoch != expected and (expected is not None or epoch > self._epochs.entries[0].epoch):
            raise Misplaced(
                "a batch is of another leader epoch than its segment", **facts, expected=expected, found=epoch
            )
        self._floor = self._begin = Offset(batch.last_offset + 1)
        begins_chunk, self._chunk = batch.position == 0 or -1 < self._chunk < chunk, chunk
        if self._firsts is None:
            return
        first = self._firsts[chunk]
        stop = next((each for each in self._firsts[chunk + 1 :] if each is not None), None)
        if first is None or base < first or (begins_chunk and base != first) or (stop is not None and base >= stop):
            raise Misplaced("a batch lies in another chunk than its manifest says", **facts)

    def holds(self, positions: Numbers, bases: Numbers, lasts: Numbers, sizes: Numbers, epochs: Numbers) -> bool:
        """Check the next batches at once. Return False, without any effect, if `check` must check them one by one."""
        ends = positions + sizes >= self._log_bytes
        valid = bases[0] >= self._floor and bool(np.all(bases[1:] > lasts[:-1]) and np.all((lasts < self._end) | ends))
        if valid and not self.has_gaps:
            begin = self._start if positions[0] == 0 else bases[0] if self._begin is None else self._begin
            valid = bool(bases[0] == begin and np.all(bases[1:] == lasts[:-1] + 1))
        valid = valid and (self._last is None or bool(np.all((lasts == self._last) | ~ends)))
        valid = valid and self._are_of_its_epochs(bases, epochs)
        chunks = positions // self._chunk_bytes
        if valid and self._bounds is not None:
            firsts, stops = self._bounds
            valid = bool(np.all(bases >= firsts[chunks]) and np.all(bases < stops[chunks]))
            before = np.append(-1 if positions[0] == 0 else chunks[0] if self._chunk < 0 else self._chunk, chunks[:-1])
            valid = valid and bool(np.all((bases == firsts[chunks]) | (chunks == before)))
        if valid:
            self._floor = self._begin = Offset(int(lasts[-1]) + 1)
            self._chunk = int(chunks[-1])
        return valid

    def _are_of_its_epochs(self, bases: Numbers, batch_epochs: Numbers) -> bool:
        starts, epochs = self._lineage
        at = np.searchsorted(starts, bases, side="right") - 1
        return bool(np.all(np.where(at < 0, batch_epochs <= epochs[0], batch_epochs == epochs[at])))

    @cached_property
    def _lineage(self) -> tuple[Numbers, Numbers]:
        """Return the start offset of each epoch, and the epochs."""
        entries = self._epochs.entries
        return np.array([each.start_offset for each in entries]), np.array([each.epoch for each in entries])

    @cached_property
    def _bounds(self) -> tuple[Numbers, Numbers] | None:
        """Return each chunk's first batch offset, and the first batch offset after it. None: a foreign segment."""
        if self._firsts is None:
            return None
        firsts = np.array([NO_OFFSET if each is None else each for each in self._firsts], np.int64)
        later = np.append(firsts[1:], NO_OFFSET)
        return firsts, np.minimum.accumulate(later[::-1])[::-1]
