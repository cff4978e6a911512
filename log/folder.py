"""Read a complete partition folder, or one segment file, without a broker. `dump-log` prints the result.

A folder does not show how a transaction ends that is open at the last offset. Its producer is *undecided*: under
read_committed, all records from the transaction's first offset on are hidden, as after a last stable offset. If only
one segment file is read, the markers of its open transactions are searched in the later segments of the folder.

Aborted transactions are read from the markers, and the transaction indexes are compared with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..state.epochs import LeaderEpoch
from ..state.errors import CorruptData, InvalidRequest
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import BatchHeader, iter_batches
from .log_piece import LogPiece
from .partition import PartitionFolder, open_partition
from .segment import LogSegment
from .transaction_index import OpenBefore, TransactionIndexCheck, open_before
from .transactions import decide


class BatchPlaces:
    """Checks offsets and leader epochs against file names, adjacent batches and the epoch checkpoint of ``folder``.

    A batch's base offset and leader epoch are outside its CRC: nothing in the batch shows that one of them was changed.
    """

    def __init__(self, folder: PartitionFolder) -> None:
        self._folder, self._checkpoint, self._epoch = folder.path, folder.lineage, -1

    def follow(
        self, batches: Iterator[BatchHeader], source: str, base: Offset, following: Offset | None
    ) -> Iterator[BatchHeader]:
        """Yield the batches of one file; call this for adjacent files in order. Raises CorruptData if a batch lies
        outside [``base``, ``following``), where None is no bound, or if its leader epoch is lower than that of the
        batch before, or another one than the checkpoint says. The checkpoint says nothing below its first entry."""
        for batch in batches:
            epoch = batch.partition_leader_epoch
            if batch.base_offset < base:
                raise self._wrong("batch lies below its segment's base offset", source, batch, base_offset=base)
            if following is not None and batch.last_offset >= following:
                raise self._wrong("batch reaches into the next segment", source, batch, next_segment=following)
            if epoch < self._epoch:
                raise self._wrong("leader epochs go back", source, batch, epoch=epoch, before=self._epoch)
            if self._others(batch):  # the broker may have added leader epochs since the checkpoint was read
                self._checkpoint = open_partition(self._folder).lineage
            if others := self._others(batch):
                raise CorruptData(
                    "a batch is of another leader epoch than the checkpoint says",
                    file=source,
                    position=batch.position,
                    offsets=f"{batch.base_offset}..{batch.last_offset}",
                    leader_epoch=epoch,
                    checkpoint=others.pop(),
                )
            self._epoch = epoch
            yield batch

    def _others(self, batch: BatchHeader) -> set[LeaderEpoch | None]:
        says = {self._checkpoint.epoch_at(batch.base_offset), self._checkpoint.epoch_at(batch.last_offset)}
        return says - {None, batch.partition_leader_epoch}

    @staticmethod
    def _wrong(what: str, source: str, batch: BatchHeader, **facts: object) -> CorruptData:
        return CorruptData(what, file=source, position=batch.position, offset=batch.base_offset, **facts)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments to read, in order. ``undecided`` maps a producer id to the first offset of its open transaction.

    ``differences`` maps the path of a transaction index to a text: the first difference from the markers.
    """

    topic: str
    partition: int
    segments: tuple[LogSegment, ...]
    aborted: tuple[AbortedRange, ...]
    undecided: dict[int, Offset] = field(default_factory=dict)
    differences: dict[Path, str] = field(default_factory=dict)

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(segment.path for segment in self.segments)

    @property
    def decided_end(self) -> Offset | None:
        """Return the offset where undecided data begins, or None if everything is decided."""
        return min(self.undecided.values(), default=None)

    def pieces(self, *, committed: bool) -> Iterator[LogPiece]:
        """Yield all data; ``committed`` hides aborted and undecided records. Raises CorruptData."""
        aborted = self.aborted if committed else None
        end = self.decided_end if committed else None
        for segment in self.segments:
            for position, data in segment.pieces():
                yield LogPiece(str(segment.path), position, data, aborted, end)

    def batches(self) -> Iterator[tuple[Path, BatchHeader]]:
        """Yield the log's path and the header of every batch, including control batches."""
        for segment in self.segments:
            for batch in segment.batches():
                yield segment.path, batch


def open_log(path: Path) -> LogFiles:
    """Read and check a partition folder, or one ``.log`` file in it. Raises InvalidRequest for any other path, and
    CorruptData for damaged files. A wrong transaction index is not an error: it is in ``differences``."""
    folder = open_partition(path if path.is_dir() else path.parent)
    segments = tuple(
        LogSegment(folder.log_path(base), active=base == folder.base_offsets[-1]) for base in folder.base_offsets
    )
    chosen = segments if path.is_dir() else tuple(segment for segment in segments if segment.path == path)
    if not chosen and not path.is_dir():
        raise InvalidRequest("neither a partition folder nor a log segment (.log)", path=path)
    following = () if path.is_dir() else segments[segments.index(chosen[0]) + 1 :]
    opened, aborted, differences = OpenBefore(), list[AbortedRange](), dict[Path, str]()
    places = BatchPlaces(folder)
    bounds = dict(pairwise((*folder.base_offsets, None)))
    for segment in chosen:
        check = _followed(segment, opened, places, bounds[segment.base_offset])
        opened = OpenBefore(check.open, check.opening_complete)
        aborted += (each.range for each in check.aborted)
        if (difference := check.difference()) is not None:
            differences[segment.transaction_index] = difference
    undecided = dict(opened.transactions)
    for segment in following:
        if undecided:
            aborted += decide(undecided, segment.pieces(), str(segment.path))
    return LogFiles(folder.topic, folder.partition, chosen, tuple(aborted), undecided, differences)


def _followed(
    segment: LogSegment, before: OpenBefore, places: BatchPlaces, following: Offset | None
) -> TransactionIndexCheck:
    """Read a segment, check its batches, and return the check of its transaction index. ``following``: the next
    segment's base offset, or None. ``before``: the transactions that are open at the end of the previous segment. If
    these are not complete, the segment's producer snapshot replaces them."""
    if not before.complete:
        snapshot = open_before(segment.base_offset, _read(segment.producer_snapshot), str(segment.producer_snapshot))
        before = snapshot if snapshot.complete else before
    index = _read(segment.transaction_index)  # before the log: both may grow, and the index must not be ahead
    source, log = str(segment.transaction_index), str(segment.path)
    check = TransactionIndexCheck(index, segment.base_offset, before, source, log=log, active=segment.active)
    for position, data in segment.pieces():
        batches = iter_batches(data, source=log, position=position, verify_crc=False)
        for batch in places.follow(batches, log, segment.base_offset, following):
            check.add(batch, data, position)
    return check


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
