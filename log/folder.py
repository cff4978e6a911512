"""A whole partition folder, or one segment file, read without a broker: what `dump-log` prints.

A lone folder cannot know what is decided beyond its end: a producer whose transaction is still open there is
*undecided*, and under read_committed everything from its first offset on is hidden, as a last stable offset does.
A segment file is decided by the segments that follow it in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..state.errors import InvalidRequest
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import BatchHeader
from .decode import RecordBlock, decode_records
from .isolation import OpenTransactions
from .partition import PartitionFolder, open_partition
from .segment import LogSegment
from .transaction_index import parse_transaction_index


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments to read, in order. ``undecided``: producer id to the first offset of its open transaction."""

    topic: str
    partition: int
    segments: tuple[LogSegment, ...]
    aborted: tuple[AbortedRange, ...]
    undecided: dict[int, Offset] = field(default_factory=dict)

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(segment.path for segment in self.segments)

    @property
    def decided_end(self) -> Offset | None:
        """Where undecided data begins; None when everything is decided."""
        return min(self.undecided.values(), default=None)

    def blocks(self, *, committed: bool) -> Iterator[RecordBlock]:
        """Every record, hiding what is aborted or undecided when ``committed``. Raises CorruptData."""
        aborted = self.aborted if committed else None
        end = self.decided_end if committed else None
        for segment in self.segments:
            for position, data in segment.pieces():
                yield from decode_records(data, source=str(segment.path), position=position, aborted=aborted, end=end)

    def batches(self) -> Iterator[tuple[Path, BatchHeader]]:
        """Every batch header, control batches too."""
        for segment in self.segments:
            for batch in segment.batches():
                yield segment.path, batch


def open_log(path: Path) -> LogFiles:
    """A partition folder, or a ``.log`` file in one. Raises InvalidRequest for anything else, CorruptData."""
    folder = open_partition(path if path.is_dir() else path.parent)
    every = tuple(
        LogSegment(folder.log_path(base), active=base == folder.base_offsets[-1]) for base in folder.base_offsets
    )
    chosen = every if path.is_dir() else tuple(segment for segment in every if segment.path == path)
    if not chosen and not path.is_dir():
        raise InvalidRequest("neither a partition folder nor a log segment (.log)", path=path)
    following = () if path.is_dir() else every[every.index(chosen[0]) + 1 :]
    return LogFiles(folder.topic, folder.partition, chosen, tuple(_aborted(folder)), _undecided(chosen, following))


def _undecided(segments: tuple[LogSegment, ...], following: tuple[LogSegment, ...]) -> dict[int, Offset]:
    transactions = OpenTransactions.of(batch for each in segments for batch in each.batches(verify_crc=False))
    opened = transactions.producers
    for segment in following:
        if not opened:
            break
        for batch in segment.batches(verify_crc=False):
            if batch.is_control:
                opened.pop(batch.producer_id, None)
    return opened


def _aborted(folder: PartitionFolder) -> Iterator[AbortedRange]:
    for base in folder.base_offsets:
        path = folder.log_path(base).with_suffix(".txnindex")
        if path.exists():
            for entry in parse_transaction_index(path.read_bytes(), str(path)):
                yield entry.range


def whole_batches(path: Path) -> Iterator[tuple[int, bytes]]:
    """(position, whole batches) of a log file; a batch cut off at its end raises CorruptData."""
    return LogSegment(path).pieces()
