"""The spool of one partition: batches that were fetched from its leader and are not copied yet, in a local folder.

    <base offset>.log                     batches, as the leader returned them
    <offset>-<leader epoch>.snapshot      the transactions that are open at this offset, in Kafka's format

The log is divided into *pieces*, which are copied like the broker's segments. A piece ends at a border of the leader's
own segments where one shows, otherwise by size or age. The last piece is active: it still grows.

A transaction index needs the transactions that are open where a piece begins. They are followed from batch to batch,
and kept in a snapshot file for the next process. The file's name has the epoch of the record before the offset,
because a log is identified up to there by this pair. Without a snapshot they may be unknown: then the index says of
each aborted transaction that an older one may have been open, which makes Kafka's readers look further.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..log.batch import CONTROL, HEADER_BYTES, MAGIC_AT, TRANSACTIONAL, BatchHeader, iter_batches
from ..log.quiet_reader import QuietReader
from ..log.transaction_index import OpenBefore, format_open_transactions, format_transaction_index, open_before
from ..log.transactions import AbortedTransaction, Transactions, decide
from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, Fenced, NotTiered, Unavailable
from ..state.lineage import shared_end
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.segment import AbortedRange

NO_EPOCH = LeaderEpoch(-1)
_NO_TIME = TimestampMs(-1)


@dataclass(slots=True)
class Piece:
    """Consecutive batches in one file. ``next_base``: the offset after its last batch; its base while it is empty.

    ``before``: the transactions that are open at its base. ``began_s``: monotonic time of its first batch. ``epoch``:
    that of its last record.
    """

    path: Path
    base: Offset
    next_base: Offset
    before: OpenBefore
    epoch: LeaderEpoch
    size_bytes: int = 0
    max_timestamp: TimestampMs = _NO_TIME
    began_s: float = 0.0
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def segment(self) -> LocalSegment:
        return LocalSegment(self.base, self.next_base, self.size_bytes, self.max_timestamp)

    def transaction_index(self) -> bytes | None:
        """Return the content of Kafka's transaction index; None if no transaction was aborted here.

        A last stable offset of 0 ends no reader's search. A higher one would say that all older transactions have
        ended, and Kafka's readers would show the records of one that is aborted later.
        """
        entries = self.aborted
        if not self.before.complete:
            entries = [replace(each, last_stable_offset=Offset(0)) for each in entries]
        return format_transaction_index(entries) or None


class Spool:
    """One thread at a time may use it. Raises Unavailable if the disk does not take or return data."""

    def __init__(self, folder: Path) -> None:
        """Create the folder, or remove pieces that an earlier process left there."""
        self.folder = folder
        self.pieces: list[Piece] = []
        self._transactions = Transactions(str(folder))
        self._known_from: Offset | None = None
        self._kept: set[Path] = set()
        """The snapshot files."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._kept.update(folder.glob("*.snapshot"))
            for left in folder.glob("*.log"):
                left.unlink()
        except OSError as error:
            raise _unusable(folder, error) from error

    @property
    def active(self) -> Piece:
        """Return the piece that grows. Raises IndexError before `begin`."""
        return self.pieces[-1]

    @property
    def rolled(self) -> list[Piece]:
        return self.pieces[:-1]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)

    def begin(self, offset: Offset, epoch: LeaderEpoch, before: OpenBefore, decided: Offset) -> None:
        """Forget all data, and begin at ``offset``. ``epoch``: that of the record before it, or `NO_EPOCH`.

        ``before``: the transactions that are open there. If they are not complete, all that are open at ``decided``
        or later are known, because all older ones have ended below it.
        """
        for piece in self.pieces:
            self._remove(piece)
        self._known_from = None if before.complete else decided
        self._transactions = Transactions(str(self.folder), before.transactions)
        self.pieces = [Piece(self._log(offset), offset, offset, before, epoch)]

    def append(self, data: bytes, now_s: float) -> int:
        """Append the complete batches in ``data`` to the active piece. Return the number of their bytes.

        A Fetch ends inside its last batch, but the first one is complete. The first batch after `begin` may begin below
        the offset there. Raises CorruptData for a batch that is damaged or does not follow the batch before, and
        NotTiered for a format before v2. The batches before it stay.
        """
        if not data:
            return 0
        active, view, stop = self.active, memoryview(data), 0
        first, after = int.from_bytes(data[:8], "big"), active.next_base - 1
        if first < active.base and self.size_bytes == 0:
            active.base, active.path, after = Offset(first), self._log(Offset(first)), first - 1
            if first == 0:  # nothing can be open before the first offset
                active.before, self._known_from = OpenBefore(complete=True), None
                self._transactions = Transactions(str(self.folder))
        source, position = str(active.path), active.size_bytes
        batches = iter_batches(data, source=source, position=position, after=after, partial_tail_ok=True)
        try:
            for batch in batches:
                self._follow(batch, view, active)
                stop = batch.position - position + batch.size_bytes
            if not stop:
                raise CorruptData("the leader returned no complete batch", file=source, position=position)
        except CorruptData as error:
            if len(data) > stop + MAGIC_AT and data[stop + MAGIC_AT] < 2:
                raise NotTiered("message format older than v2", offset=active.next_base, file=source) from error
            raise
        finally:
            if stop:
                self._write(active, view[:stop], now_s)
        return stop

    def _follow(self, batch: BatchHeader, data: memoryview, active: Piece) -> None:
        if batch.attributes & (TRANSACTIONAL | CONTROL):
            self._transactions.add(batch, data, active.size_bytes)
        active.next_base, active.epoch = Offset(batch.last_offset + 1), LeaderEpoch(batch.partition_leader_epoch)
        active.max_timestamp = TimestampMs(max(active.max_timestamp, batch.max_timestamp))

    def _write(self, active: Piece, data: memoryview, now_s: float) -> None:
        if not active.size_bytes:
            active.began_s = now_s
        try:
            with active.path.open("ab") as file:
                file.write(data)
        except OSError as error:
            raise _unusable(active.path, error) from error
        active.size_bytes += len(data)

    def roll(self) -> None:
        """End the active piece, if it has data, and begin the next one."""
        active = self.active
        if not active.size_bytes:
            return
        active.aborted = self._transactions.aborted
        opened, base = dict(self._transactions.open), active.next_base
        complete = active.before.complete or (self._known_from is not None and base >= self._known_from)
        before = OpenBefore(opened, complete)
        self._transactions = Transactions(str(self.folder), opened)
        if complete:
            self._keep(base, active.epoch, format_open_transactions(opened))
        self.pieces.append(Piece(self._log(base), base, base, before, active.epoch))

    def snapshot(self, offset: Offset, epoch: LeaderEpoch) -> bytes | None:
        """Return the snapshot file of the transactions that are open at ``offset``; None if there is none."""
        try:
            return self._snapshot(offset, epoch).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def kept_before(self, offset: Offset, epoch: LeaderEpoch) -> OpenBefore:
        """Return the transactions that are open at ``offset``, from the snapshot file; not complete without one."""
        return open_before(offset, self.snapshot(offset, epoch), str(self._snapshot(offset, epoch)))

    def drop_below(self, offset: Offset) -> None:
        """Remove the rolled pieces that end at or below ``offset``, and the snapshots below it."""
        while len(self.pieces) > 1 and self.pieces[0].next_base <= offset:
            self._remove(self.pieces.pop(0))
        for path in [path for path in self._kept if int(path.name[:20]) < offset]:
            path.unlink(missing_ok=True)
            self._kept.remove(path)

    def clear(self) -> None:
        """Remove all data. The snapshots stay."""
        for piece in self.pieces:
            self._remove(piece)
        self.pieces = []

    def _keep(self, offset: Offset, epoch: LeaderEpoch, data: bytes) -> None:
        path = self._snapshot(offset, epoch)
        new = path.with_suffix(".new")
        try:
            new.write_bytes(data)
            new.rename(path)
            self._kept.add(path)
        except OSError as error:
            raise _unusable(path, error) from error

    def _log(self, base: Offset) -> Path:
        return self.folder / f"{base:020d}.log"

    def _snapshot(self, offset: Offset, epoch: LeaderEpoch) -> Path:
        return self.folder / f"{offset:020d}-{epoch}.snapshot"

    @staticmethod
    def _remove(piece: Piece) -> None:
        with suppress(OSError):
            os.unlink(piece.path)


def _unusable(path: Path, error: OSError) -> Unavailable:
    return Unavailable("the spool cannot be used", file=path, reason=error.strerror)


Later = Callable[[], Iterator[tuple[int, bytes]]]
"""Yields (byte position, complete batches) of the log after the piece."""


class SpooledSegment(AbstractContextManager["SpooledSegment"]):
    """``snapshot``: that of the next piece's base, or empty. ``holds``: returns whether the spool still has the piece.

    Raises Fenced if the piece left the spool.
    """

    def __init__(
        self, piece: Piece, lineage: Lineage, snapshot: bytes, later: Later, holds: Callable[[], bool]
    ) -> None:
        self._later, self._holds = later, holds
        self.lineage, self.path, self.log_bytes = lineage, piece.path, piece.size_bytes
        self.offset_index: bytes | None = None
        self.time_index: bytes | None = None
        self.transaction_index, self.before = piece.transaction_index(), piece.before
        self.producer_snapshot = snapshot
        with ExitStack() as opened:
            try:
                file = opened.enter_context(piece.path.open("rb"))
            except FileNotFoundError as error:
                raise Fenced("the segment left the spool meanwhile", file=piece.path) from error
            self.log = QuietReader(file.fileno(), self.log_bytes, str(piece.path), lambda *_: [])
            opened.callback(self.log.close)
            self._opened = opened.pop_all()

    def head(self) -> bytes:
        return self.log.read(min(HEADER_BYTES, self.log_bytes), 0)

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Return the aborted transactions. Raises Unavailable while one has no end: it would count as committed."""
        left = dict(opened)
        aborted = tuple(decide(left, self._later(), str(self.path))) if left else ()
        if left:
            raise Unavailable("the leader does not show yet how a transaction ended", file=self.path, open=len(left))
        return aborted

    def confirm(self) -> None:
        if not self._holds():
            raise Fenced("the segment left the spool", file=self.path)

    def __exit__(self, *error: object) -> None:
        self._opened.close()


def first_missing(view: PartitionView, lineage: Lineage, log_start: Offset) -> Offset:
    """Return the first offset of the leader's log that is not copied. ``lineage``: that of the leader's log.

    The view may be of an earlier epoch. The log of that epoch and the leader's log are the same only up to the offset
    where they diverge. If the leader does not have the result, nothing can be fetched, and no term begins.
    """
    missing = Offset(view.coverage.prefix_end(Offset(max(view.log_start or 0, log_start))) + 1)
    same = shared_end(view.lineage, lineage)
    return missing if same is None else max(log_start, min(missing, same))


def local_segments(view: PartitionView, log_start: Offset, pieces: Sequence[Piece]) -> LocalSegments:
    """Return the copied segments that the leader still has, then the pieces of the spool. The last one is active.

    If the spool is empty, this is the last copied one: it stays, like a broker's last segment, because an emptied log
    needs a new term.
    """
    first = pieces[0].base
    copied = view.coverage.within(OffsetRange(log_start, Offset(first - 1))) if first > log_start else []
    rolled: list[LocalSegment] = []
    for owned in copied:
        segment, base = owned.segment, owned.offsets.start
        if rolled and rolled[-1].next_base != base:
            rolled.clear()  # a gap: nothing below it can be trimmed
        rolled.append(LocalSegment(base, Offset(owned.offsets.end + 1), segment.log_bytes, segment.max_timestamp))
    if rolled and rolled[-1].next_base != first:
        rolled.clear()
    rolled += [piece.segment for piece in pieces[:-1]]
    active = pieces[-1].segment
    if not active.size_bytes and rolled and len(pieces) == 1:
        active = rolled.pop()
    return LocalSegments(rolled, [replace(active, next_base=active.base_offset)])


def above(lineage: Lineage, log_start: Offset) -> Lineage:
    """Return the lineage that the leader's checkpoint has after its log start moved to ``log_start``."""
    at = bisect_right(lineage.entries, log_start, key=lambda entry: entry.start_offset) - 1
    if at < 0:
        return lineage
    return Lineage((EpochEntry(lineage.entries[at].epoch, log_start), *lineage.entries[at + 1 :]))
