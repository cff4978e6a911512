"""The log of one segment, read once and sequentially, checking every batch on its way to the object store.

Checked: CRC-32C, magic 2, strictly increasing offsets inside the segment's range, leader epochs that agree with the
lineage. Memory: one piece (1 MiB) plus the largest batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from ..log.batch import BatchHeader, iter_batches
from ..log.local_log import SegmentFiles
from ..log.offset_index import OffsetIndexBuilder, OffsetIndexCheck, parse_offset_index
from ..log.time_index import TimeIndexBuilder, TimeIndexEntry, parse_time_index
from ..state.errors import CorruptData
from ..state.offsets import Offset, OffsetRange, TimestampMs

PIECE_BYTES = 1 << 20


class CheckedLog:
    """Iterate `pieces` to the end; then the attributes below speak for the whole segment."""

    def __init__(self, files: SegmentFiles, offsets: OffsetRange, chunk_bytes: int) -> None:
        self._files, self._file, self._source = files, files.log, str(files.path)
        self._offsets, self._lineage = offsets, files.lineage
        self._chunk_bytes, self.size_bytes = chunk_bytes, files.log_bytes
        self._offset_index = OffsetIndexBuilder(offsets.start)
        self._time_index = TimeIndexBuilder(offsets.start)
        self._check_offsets, self._check_times = _broker_index(files, offsets)
        self.record_count = 0
        self.last_record_offset = Offset(offsets.start - 1)
        self.max_timestamp = TimestampMs(-1)
        self.first_codec: int | None = None
        self._batch_starts: dict[int, Offset] = {}

    def pieces(self) -> Iterator[bytes]:
        """The plain bytes, in order. Raises CorruptData naming file and position; nothing after it is yielded."""
        carried, position, read = b"", 0, 0
        self._file.seek(0)
        while read < self.size_bytes:
            piece = self._file.read(min(PIECE_BYTES, self.size_bytes - read))
            if not piece:
                raise CorruptData("log segment is shorter than it was", file=self._source, position=read)
            read += len(piece)
            buffered = carried + piece
            consumed = 0
            for batch in iter_batches(buffered, source=self._source, position=position, partial_tail_ok=True):
                self._check(batch)
                consumed = batch.position - position + batch.size_bytes
            position += consumed
            carried = buffered[consumed:]
            os.posix_fadvise(self._file.fileno(), 0, read, os.POSIX_FADV_DONTNEED)
            yield piece
        if carried:
            raise CorruptData("log segment ends inside a batch", file=self._source, position=position)

    def _check(self, batch: BatchHeader) -> None:
        first, last = batch.base_offset, batch.last_offset
        if first <= self.last_record_offset or first < self._offsets.start or last > self._offsets.end:
            raise CorruptData(
                "batch offsets are not in order inside the segment",
                file=self._source,
                position=batch.position,
                batch=f"{first}..{last}",
                segment=self._offsets,
            )
        if self._lineage.epoch_at(first) != batch.partition_leader_epoch:
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
        self._batch_starts.setdefault(batch.position // self._chunk_bytes, Offset(first))
        if self.first_codec is None:
            self.first_codec = batch.codec
        if batch.is_control:
            return
        self.record_count += batch.record_count
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = TimestampMs(batch.max_timestamp)

    def chunk_first_offsets(self) -> tuple[Offset | None, ...]:
        """For each chunk the base offset of the first batch that begins in it (`storage.segment.chunks`)."""
        chunks = max(1, -(-self.size_bytes // self._chunk_bytes))
        return tuple(self._batch_starts.get(chunk) for chunk in range(chunks))

    def offset_index(self) -> bytes:
        """The broker's, where every entry points to a batch of this log; else rebuilt as Kafka's recovery would."""
        check, own = self._check_offsets, self._files.offset_index
        return own if own is not None and check is not None and check.fits else self._offset_index.bytes()

    def time_index(self) -> bytes:
        """The broker's, where it ends at the log's highest timestamp; rebuilt otherwise."""
        own, entries = self._files.time_index, self._check_times
        fits = entries is not None and entries and entries[-1].timestamp == self._time_index.highest
        return own if own is not None and fits else self._time_index.bytes()


def _broker_index(
    files: SegmentFiles, offsets: OffsetRange
) -> tuple[OffsetIndexCheck | None, list[TimeIndexEntry] | None]:
    """The broker's own indexes, ready to be checked against the log; None for one that is missing or damaged."""
    check, times = None, None
    with suppress(CorruptData):
        if files.offset_index is not None:
            entries = parse_offset_index(files.offset_index, offsets.start, str(files.path.with_suffix(".index")))
            check = OffsetIndexCheck(entries, offsets.end)
    with suppress(CorruptData):
        if files.time_index is not None:
            times = parse_time_index(files.time_index, offsets.start, str(files.path.with_suffix(".timeindex")))
    return check, times
