"""One replica of a generated history's user partition: its log, start, epochs and segments, as Kafka keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from tests.log.batches import Batch, marker, record
from tierstate.log.batch import TRANSACTIONAL
from tierstate.log.transaction_index import ENTRY
from tierstate.log.transactions import ABORT, COMMIT


@dataclass(frozen=True, eq=False)
class Written:
    """A batch as a leader wrote it. Its number distinguishes the branches of the log.

    ``producer`` -1: no transaction. ``aborts``: its transaction aborts, on every branch on which it ends.
    """

    number: int
    base: int
    count: int
    epoch: int
    time: int
    producer: int = -1
    aborts: bool = False
    is_marker: bool = False

    @property
    def end(self) -> int:
        return self.base + self.count

    @cached_property
    def data(self) -> bytes:
        if self.is_marker:
            kind = ABORT if self.aborts else COMMIT
            return marker(self.base, self.producer, kind, time=self.time, epoch=self.epoch)
        value = b"%d" % self.number
        records = [record(at, None, value) for at in range(self.count)]
        of_what = TRANSACTIONAL if self.producer >= 0 else 0
        return Batch(
            self.base, records, attributes=of_what, producer=self.producer, time=self.time, epoch=self.epoch
        ).bytes


@dataclass
class Broker:
    """One replica. ``log`` is its whole branch, also the batches below ``start``, which it no longer stores."""

    number: int
    log: list[Written] = field(default_factory=list)
    start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    bases: list[int] = field(default_factory=lambda: [0])
    online: bool = True
    doomed: list[int] = field(default_factory=list)
    """Bases of the segments below ``start`` whose files the last DeleteRecords left: Kafka deletes them minutes later.
    """

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def open(self, end: int | None = None) -> dict[int, Written]:
        """Return each producer with an open transaction and its first batch, at the log's end or at ``end``."""
        found: dict[int, Written] = {}
        for batch in self.log:
            if end is not None and batch.base >= end:
                break
            if batch.is_marker:
                found.pop(batch.producer, None)
            elif batch.producer >= 0:
                found.setdefault(batch.producer, batch)
        return found

    def transaction_index(self, base: int, following: int) -> bytes:
        """Return the segment's transaction index as Kafka writes it."""
        opened = {producer: first.base for producer, first in self.open(base).items()}
        entries = b""
        for batch in self.log:
            if not base <= batch.base < following or batch.producer < 0:
                continue
            if not batch.is_marker:
                opened.setdefault(batch.producer, batch.base)
            elif (first := opened.pop(batch.producer, None)) is not None and batch.aborts:
                stable = min(opened.values(), default=batch.end)
                entries += ENTRY.pack(0, batch.producer, first, batch.base, stable)
        return entries

    def append(self, batch: Written, roll: bool) -> None:
        if roll and batch.base > self.bases[-1]:
            self.bases.append(batch.base)
        self.log.append(batch)
        if not self.epochs or self.epochs[-1][0] < batch.epoch:
            self.epochs.append((batch.epoch, batch.base))

    def truncate_to(self, end: int) -> None:
        while self.log and self.log[-1].end > end:
            self.log.pop()
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.bases = [base for base in self.bases if base < self.end] or [self.end]
        self.start, self.doomed = min(self.start, self.end), []

    def die(self, *, early: bool) -> None:
        """Forget the log start, which was not on the disk yet. ``early``: no file below it was deleted yet either."""
        self.bases[:0] = self.doomed if early else []
        self.start, self.doomed = min(self.start, self.bases[0]), []

    def move_start(self, start: int) -> None:
        start = min(start, self.end)
        if start <= self.start:
            return
        self.start = start
        covering = [entry for entry in self.epochs if entry[1] <= start][-1:]
        self.epochs = [(epoch, start) for epoch, _ in covering] + [e for e in self.epochs if e[1] > start]
        below = [base for base in self.bases if base <= start]
        self.bases, self.doomed = below[-1:] + self.bases[len(below) :], below[:-1]

    def take_all(self) -> None:
        """Delete all records, as Kafka's retention of the active segment does. A new segment begins at the end."""
        self.move_start(self.end)
        self.bases, self.doomed = [self.end], []

    def segments(self) -> list[tuple[int, int, list[Written]]]:
        """Return base offset, next base offset and batches of each segment. The last segment is active."""
        borders = [*self.bases, self.end]
        return [
            (base, following, [batch for batch in self.log if base <= batch.base < following])
            for base, following in pairwise(borders)
        ]
