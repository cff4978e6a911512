"""The log of one segment, read once and sequentially; every batch is checked on its way to the object store.

The checks are: CRC-32C, magic 2, strictly increasing offsets inside the segment's range, leader epochs that agree with
the lineage. The broker's indexes are checked against the log, and rebuilt where they do not fit. Aborted transactions
are read from the markers, never from the broker's transaction index. The largest timestamp is that of all batches,
including transaction markers, as in Kafka's retention (KIP-405, seen by the gold run). A batch that Kafka serves but
readers of the remote tier refuse is copied, and noted. Memory: 256 KiB or the largest batch, and the indexes twice, the
broker's and ours: 3 MiB for 1 GiB of batches of 16 KiB, 10 MiB where they have 4; and `log.transactions`, 6 MiB for
20,000 aborted ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..log.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, iter_batches
from ..log.local_log import SegmentFiles
from ..log.offset_index import OffsetIndexBuilder, OffsetIndexCheck, offset_index_entries
from ..log.record_parser import is_decodable
from ..log.time_index import TimeIndexBuilder, TimeIndexCheck, time_index_entries
from ..log.transaction_check import TransactionIndexCheck
from ..state.errors import CorruptData
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.segment import AbortedRange

PIECE_BYTES = 256 * 1024
"""Bytes checked and passed on at once: about 1 ms of processor time, for which a broker on this machine may wait."""


class CheckedLog:
    """Iterate `pieces` to the end; then the attributes below describe the whole segment."""

    def __init__(self, files: SegmentFiles, offsets: OffsetRange, chunk_bytes: int) -> None:
        self.files, self._source = files, str(files.path)
        self._offsets, self._lineage = offsets, files.lineage
        self._chunk_bytes, self.size_bytes = chunk_bytes, files.log_bytes
        self._offset_index = OffsetIndexBuilder(offsets.start)
        self._time_index = TimeIndexBuilder(offsets.start)
        self._check_offsets, self._check_times = _broker_index(files, offsets)
        self.index_file = str(files.path.with_suffix(".txnindex"))
        self._transactions = TransactionIndexCheck(
            files.transaction_index, offsets.start, files.before, self.index_file, log=self._source
        )
        self.record_count = 0
        self.last_record_offset = Offset(offsets.start - 1)
        self.max_timestamp = TimestampMs(-1)
        self.first_codec: int | None = None
        self.undecodable: Offset | None = None
        self._batch_starts: dict[int, Offset] = {}

    def pieces(self) -> Iterator[memoryview]:
        """Yield the plain bytes in order, whole batches each; a piece is overwritten when the next one is asked for.

        Raises CorruptData naming file and position; nothing after it is yielded.
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
            elif batch_bytes <= len(window):  # half a header, or zeros
                raise CorruptData("log segment ends inside a batch", file=self._source, position=position)
            if batch_bytes > len(buffer):
                buffer = bytearray(batch_bytes)
            position = stop  # a batch that was cut off is read again from its start: nothing is kept and moved

    def _read(self, position: int, window: memoryview) -> memoryview:
        """Fill ``window`` from ``position`` and return it. Raises CorruptData when the file is shorter than it was."""
        count = self.files.log.read_into(window, position)
        if count < len(window):
            raise CorruptData("log segment is shorter than it was", file=self._source, position=position + count)
        return window

    def _claimed(self, head: memoryview, position: int) -> int:
        """Return the size in bytes that the batch at ``position`` claims; 0 when there is no whole header yet.

        Raises CorruptData for a batch that claims more than the segment has, before all of it is read.
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
        if first <= self.last_record_offset or first < self._offsets.start or last > self._offsets.end:
            raise CorruptData(
                "batch offsets are not in order inside the segment",
                file=self._source,
                position=batch.position,
                batch=f"{first}..{last}",
                offsets=self._offsets,
            )
        if not self._epoch_agrees(batch):
            raise CorruptData(
                "batch has another leader epoch than the checkpoint",
                file=self._source,
                position=batch.position,
                offset=first,
                batch_epoch=batch.partition_leader_epoch,
                checkpoint_epoch=self._lineage.epoch_at(first),
            )
        self.last_record_offset = Offset(last)
        self._time_index.add(batch, self._offset_index.add(batch))
        if self._check_offsets is not None:
            self._check_offsets.add(batch)
        if self._check_times is not None:
            self._check_times.add(batch, self._time_index.highest)
        self._batch_starts.setdefault(batch.position // self._chunk_bytes, Offset(first))
        if self.first_codec is None:
            self.first_codec = batch.codec
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = TimestampMs(batch.max_timestamp)
        if not batch.is_control:
            self.record_count += batch.record_count

    def _epoch_agrees(self, batch: BatchHeader) -> bool:
        """Return whether the epoch fits the checkpoint. Below its log start, only an epoch that is too new does not."""
        epoch, oldest = batch.partition_leader_epoch, self._lineage.entries[:1]
        epochs = {self._lineage.epoch_at(batch.base_offset), self._lineage.epoch_at(batch.last_offset)}
        if None in epochs and (not oldest or epoch > oldest[0].epoch):
            return False
        return epochs <= {epoch, None}

    def chunk_first_offsets(self) -> tuple[Offset | None, ...]:
        """Return for each chunk the base offset of the first batch that begins in it (`storage.segment.chunks`)."""
        chunks = max(1, -(-self.size_bytes // self._chunk_bytes))
        return tuple(self._batch_starts.get(chunk) for chunk in range(chunks))

    def offset_index(self) -> bytes:
        """Return the broker's index if each entry points to a batch of the log, else rebuilt as in Kafka's recovery."""
        check, own = self._check_offsets, self.files.offset_index
        return own if own is not None and check is not None and check.fits else self._offset_index.bytes()

    def time_index(self) -> bytes:
        """Return the broker's index if each entry is true of this log and the last one its highest, else rebuilt."""
        check, own = self._check_times, self.files.time_index
        return own if own is not None and check is not None and check.fits else self._time_index.bytes()

    def aborted(self) -> tuple[AbortedRange, ...]:
        """Return every aborted range that touches the segment, by its marker, which may lie behind its end."""
        later = self.files.aborted_later(self._transactions.open)
        return tuple(sorted([*(each.range for each in self._transactions.aborted), *later]))

    def transaction_index(self) -> tuple[bytes | None, str | None]:
        """Return the broker's index if it agrees with the markers; else one rebuilt from them, and how they differ.

        Raises CorruptData if it differs and no file shows which transactions were open at the segment's base: an entry
        below it cannot be rebuilt then, and Kafka's readers rely on it.
        """
        check, own = self._transactions, self.files.transaction_index
        difference = check.difference()
        if difference is not None and not check.opening_complete:
            raise CorruptData(
                "the transaction index contradicts the markers, and no producer snapshot says what was open before",
                file=self.index_file,
                difference=difference,
            )
        return (own, None) if difference is None else (check.bytes() or None, difference)


def _broker_index(files: SegmentFiles, offsets: OffsetRange) -> tuple[OffsetIndexCheck | None, TimeIndexCheck | None]:
    """Return checks for the broker's offset and time index against the log; None for an index that is missing."""
    check, times = None, None
    if files.offset_index is not None:
        entries = offset_index_entries(files.offset_index, offsets.start, str(files.path.with_suffix(".index")))
        check = OffsetIndexCheck(entries, offsets.end)
    if files.time_index is not None:
        source = str(files.path.with_suffix(".timeindex"))
        times = TimeIndexCheck(time_index_entries(files.time_index, offsets.start, source))
    return check, times
