"""A whole partition folder, or one segment file, read without a broker: what `dump-log` prints.

A lone folder cannot know what is decided beyond its end: a producer whose transaction is still open there is
*undecided*, and under read_committed everything from its first offset on is hidden, as a last stable offset does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..state.errors import CorruptData, InvalidRequest
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import BatchHeader, iter_batches
from .decode import RecordBlock, decode_records
from .isolation import OpenTransactions
from .partition import PartitionFolder, open_partition
from .transaction_index import parse_transaction_index

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments to read, in order. ``undecided``: producer id to the first offset of its open transaction."""

    topic: str
    partition: int
    logs: tuple[Path, ...]
    aborted: tuple[AbortedRange, ...]
    undecided: dict[int, Offset] = field(default_factory=dict)

    @property
    def decided_end(self) -> Offset | None:
        """Where undecided data begins; None when everything is decided."""
        return min(self.undecided.values(), default=None)

    def blocks(self, *, committed: bool) -> Iterator[RecordBlock]:
        """Every record, hiding what is aborted or undecided when ``committed``. Raises CorruptData."""
        aborted = self.aborted if committed else None
        end = self.decided_end if committed else None
        for path in self.logs:
            for position, data in whole_batches(path):
                yield from decode_records(data, source=str(path), position=position, aborted=aborted, end=end)

    def batches(self) -> Iterator[tuple[Path, BatchHeader]]:
        """Every batch header, control batches too."""
        for path in self.logs:
            for position, data in whole_batches(path):
                for batch in iter_batches(data, source=str(path), position=position):
                    yield path, batch


def open_log(path: Path) -> LogFiles:
    """A partition folder, or a ``.log`` file in one. Raises InvalidRequest for anything else, CorruptData."""
    folder = open_partition(path if path.is_dir() else path.parent)
    logs = tuple(folder.log_path(base) for base in folder.base_offsets)
    if not path.is_dir():
        if path.suffix != ".log" or path not in logs:
            raise InvalidRequest("neither a partition folder nor a log segment (.log)", path=path)
        logs = (path,)
    found = LogFiles(folder.topic, folder.partition, logs, tuple(_aborted(folder)))
    transactions = OpenTransactions.of(batch for _, batch in found.batches())
    return LogFiles(found.topic, found.partition, logs, found.aborted, transactions.producers)


def _aborted(folder: PartitionFolder) -> Iterator[AbortedRange]:
    for base in folder.base_offsets:
        path = folder.log_path(base).with_suffix(".txnindex")
        if path.exists():
            for entry in parse_transaction_index(path.read_bytes(), str(path)):
                yield entry.range


def whole_batches(path: Path) -> Iterator[tuple[int, bytes]]:
    """(position, whole batches) of a log file, about `READ_BYTES` at a time.

    A batch that is cut off at the end of the file raises CorruptData: only an active segment after a crash has one.
    """
    with path.open("rb") as file:
        position, carried = 0, b""
        while piece := file.read(READ_BYTES):
            data = carried + piece
            end = 0
            for batch in iter_batches(
                data, source=str(path), position=position, verify_crc=False, partial_tail_ok=True
            ):
                end = batch.position - position + batch.size_bytes
            if end:
                yield position, data[:end]
            position, carried = position + end, data[end:]
        if carried:
            raise CorruptData("log ends inside a batch", file=path, position=position, bytes=len(carried))
