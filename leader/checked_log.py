"""The log of one segment, read once and sequentially. Every batch is checked on its way to the object store.

The checks are: CRC-32C, magic 2, strictly increasing offsets inside the segment's range, leader epochs that agree with
the lineage. The broker's indexes are checked against the log; an index that does not fit is replaced by a rebuilt
index. Aborted transactions are read from the markers, never from the broker's transaction index. The largest timestamp
is taken over all batches, including transaction markers, as in Kafka's retention (KIP-405, confirmed by the gold run).
A batch that Kafka serves but readers of the remote tier refuse is copied, and `undecodable` holds its base offset.
Memory: 256 KiB, or the largest batch if it is larger. The broker's and the rebuilt indexes together take 3 MiB for
1 GiB of batches of 16 KiB, and 10 MiB for batches of 4 KiB. `log.transactions` takes 6 MiB for 20,000 aborted ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..log.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, iter_batches
from ..log.indexes import (
    OffsetIndexBuilder,
    OffsetIndexCheck,
    TimeIndexBuilder,
    TimeIndexCheck,
    offset_index_entries,
    time_index_entries,
)
from ..log.local_log import SegmentFiles
from ..log.record_parser import is_decodable
from ..log.transaction_index import TransactionIndexCheck
from ..state.errors import CorruptData
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.segment import AbortedRange

PIECE_BYTES = 256 * 1024
"""Bytes checked and passed on at once: about 1 ms of processor time, for which a broker on this machine may wait."""


class CheckedLog:
    """A log under check. Iterate over `pieces` to the end; then the other members describe the whole segment."""

    def __init__(self, files: SegmentFiles, offsets: OffsetRange, chunk_bytes: int) -> None:
        self.files, self._source = files, str(files.path)
        self._offsets, self._lineage = offsets, files.lineage
        self._chunk_bytes, self.size_bytes = chunk_bytes, files.log_bytes
        self._offset_index = OffsetIndexBuilder(offsets.start)
        self._time_index = TimeIndexBuilder(offsets.start)
        offset_entries = offset_index_entries(
            files.offset_index or b"", offsets.start, str(files.path.with_suffix(".index"))
        )
        self._offset_index_check = OffsetIndexCheck(offset_entries, offsets.end)
        time_entries = time_index_entries(
            files.time_index or b"", offsets.start, str(files.path.with_suffix(".timeindex"))
        )
        self._time_index_check = TimeIndexCheck(time_entries)
        self.transaction_index_file = str(files.path.with_suffix(".txnindex"))
        self._transactions = TransactionIndexCheck(
            files.transaction_index, offsets.start, files.before, self.transaction_index_file, log=self._source
        )
        self.record_count = 0
        self.last_record_offset = Offset(offsets.start - 1)
        self.max_timestamp = TimestampMs(-1)
        self.undecodable: Offset | None = None
        self._batch_starts: dict[int, Offset] = {}

    def pieces(self) -> Iterator[memoryview]:
        """Yield the plain bytes in order, in pieces of complete batches. The next piece may overwrite the last one.

        Raises CorruptData naming file and position; the piece with that position is not yielded.
        """
        buffer, position = bytearray(min(PIECE_BYTES, self.size_bytes)), 0
        while position < self.size_bytes:
            window = self._read(position, memoryview(buffer)[: self.size_bytes - position])
            stop = position
            for batch in iter_batches(window, source=self._source, position=position, partial_tail_ok=True):
                self._check(batch)
                if batch.attributes & (TRANSACTIONAL | CONTROL):
                    self._transactions.add(batch, window, position)
                if self.undecodable is None and not is_decodable(window, batch.position - position, batch):
                    self.undecodable = Offset(batch.base_offset)
                stop = batch.position + batch.size_bytes
            whole_bytes = stop - position
            batch_bytes = self._claimed(window[whole_bytes : whole_bytes + HEADER_BYTES], stop)
            if whole_bytes:
                self.files.log.drop(stop)
                yield window[:whole_bytes]
            elif batch_bytes <= len(window):  # only part of a header remains, or the header is zeros
                raise CorruptData("log segment ends inside a batch", file=self._source, position=position)
            if batch_bytes > len(buffer):
                buffer = bytearray(batch_bytes)
            position = stop  # a batch that the window cut off is read again from its start: no bytes are moved

    def _read(self, position: int, window: memoryview) -> memoryview:
        """Fill ``window`` from ``position`` and return it. Raises CorruptData if the file became shorter."""
        count = self.files.log.read_into(window, position)
        if count < len(window):
            raise CorruptData("log segment is shorter than it was", file=self._source, position=position + count)
        return window

    def _claimed(self, head: memoryview, position: int) -> int:
        """Return the size in bytes that the header of the batch at ``position`` states; 0 if ``head`` is too short.

        Raises CorruptData if the batch would reach past the end of the segment; the batch is not read first.
        """
        if len(head) < HEADER_BYTES:
            return 0
        batch_bytes = int.from_bytes(head[8:12], "big", signed=True) + 12
        if position + batch_bytes > self.size_bytes:
            raise CorruptData(
                "batch reaches past the end of the log segment",
                file=self._source,
                position=position,
                bytes=batch_bytes,
                log_bytes=self.size_bytes,
            )
        return batch_bytes

    def _check(self, batch: BatchHeader) -> None:
        first, last = batch.base_offset, batch.last_offset
        facts = {"file": self._source, "position": batch.position}
        if first <= self.last_record_offset or first < self._offsets.start or last > self._offsets.end:
            span = f"{first}..{last}"
            raise CorruptData(
                "batch offsets are not in order inside the segment", **facts, batch=span, offsets=self._offsets
            )
        if not self._epoch_agrees(batch):
            epochs = {"batch_epoch": batch.partition_leader_epoch, "checkpoint_epoch": self._lineage.epoch_at(first)}
            raise CorruptData("batch has another leader epoch than the checkpoint", **facts, offset=first, **epochs)
        self.last_record_offset = Offset(last)
        self._time_index.add(batch, self._offset_index.add(batch))
        self._offset_index_check.add(batch)
        self._time_index_check.add(batch, self._time_index.highest)
        self._batch_starts.setdefault(batch.position // self._chunk_bytes, Offset(first))
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = TimestampMs(batch.max_timestamp)
        if not batch.is_control:
            self.record_count += batch.record_count

    def _epoch_agrees(self, batch: BatchHeader) -> bool:
        """Return whether the epoch is the checkpoint's or, below its first entry, at most the epoch of that entry."""
        epoch, oldest = batch.partition_leader_epoch, self._lineage.entries[:1]
        epochs = {self._lineage.epoch_at(batch.base_offset), self._lineage.epoch_at(batch.last_offset)}
        if None in epochs and (not oldest or epoch > oldest[0].epoch):
            return False
        return epochs <= {epoch, None}

    def chunk_first_offsets(self) -> tuple[Offset | None, ...]:
        """Return the base offset of the first batch that begins in each chunk (`storage.segment.chunks`), or None."""
        chunks = max(1, -(-self.size_bytes // self._chunk_bytes))
        return tuple(self._batch_starts.get(chunk) for chunk in range(chunks))

    def offset_index(self) -> bytes:
        """Return the broker's index if each entry points to a batch of the log; otherwise the rebuilt index."""
        if self.files.offset_index is not None and self._offset_index_check.fits:
            return self.files.offset_index
        return self._offset_index.bytes()

    def time_index(self) -> bytes:
        """Return the broker's index if its entries are true and end with the highest timestamp; else the rebuilt."""
        if self.files.time_index is not None and self._time_index_check.fits:
            return self.files.time_index
        return self._time_index.bytes()

    def aborted(self) -> tuple[AbortedRange, ...]:
        """Return every aborted range that overlaps the segment, sorted. Its marker may be in a later segment."""
        later = self.files.aborted_later(self._transactions.open)
        return tuple(sorted([*(each.range for each in self._transactions.aborted), *later]))

    def transaction_index(self) -> tuple[bytes | None, str | None]:
        """Return the broker's index and None if the index agrees with the markers.

        Otherwise return the index rebuilt from the markers (None if it has no entries), and the difference.
        Raises CorruptData if they differ and no file shows which transactions were open at the segment's base offset.
        Their entries cannot be rebuilt then, and Kafka's readers rely on these entries.
        """
        check, broker_index = self._transactions, self.files.transaction_index
        difference = check.difference()
        if difference is not None and not check.opening_complete:
            raise CorruptData(
                "the transaction index contradicts the markers, and no producer snapshot says what was open before",
                file=self.transaction_index_file,
                difference=difference,
            )
        return (broker_index, None) if difference is None else (check.bytes() or None, difference)
