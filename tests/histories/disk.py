"""A broker's disk in a history, in memory. Its transaction indexes are damaged now and then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

from tests.histories.cluster import NAME, Cluster
from tests.histories.replica import Broker
from tierstate.log.batch import HEADER_BYTES
from tierstate.log.folder_events import Touched
from tierstate.log.local_log import LocalSnapshot, SegmentFiles
from tierstate.log.quiet_reader import QuietReader
from tierstate.log.transaction_index import OpenBefore
from tierstate.log.transactions import decide
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import Fenced
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.lineage import continued_down
from tierstate.state.local_segments import LocalSegment, LocalSegments
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.segment import AbortedRange


class HistoryLog:
    """`LocalLog` over one broker's log in memory."""

    def __init__(self, cluster: Cluster, replica: Broker) -> None:
        self._cluster, self.replica, self.fate = cluster, replica, cluster.fate
        self._log_start: Offset | None = None

    @property
    def partition(self) -> TopicIdPartition:
        return self._cluster.partition

    @property
    def agent_id(self) -> BrokerId:
        return BrokerId(self.replica.number)

    @property
    def broker(self) -> BrokerId:
        return BrokerId(self.replica.number)

    def broker_of(self, partition: TopicIdPartition) -> BrokerId:
        return BrokerId(self.replica.number)

    def require_owned(self, partition: TopicIdPartition) -> None:
        """Do nothing: each broker has one agent."""

    def partitions(self) -> dict[TopicIdPartition, str]:
        return {self.partition: NAME} if self._cluster.exists else {}

    def listed(self) -> dict[TopicIdPartition, str]:
        return self.partitions()

    def touched(self) -> Touched:
        return Touched(frozenset(), False, True)

    def snapshot(self, partition: TopicIdPartition, name: str, log_start: Offset | None = None) -> LocalSnapshot:
        if partition != self._cluster.partition or not self._cluster.exists:
            raise Fenced("the partition is not on these disks", partition=partition)
        found = self.replica.segments()
        segments = tuple(
            LocalSegment(
                Offset(base),
                Offset(base if at + 1 == len(found) else following),
                sum(len(batch.data) for batch in batches),
                TimestampMs(max((batch.time for batch in batches), default=self._cluster.clock.now_ms())),
            )
            for at, (base, following, batches) in enumerate(found)
        )
        return LocalSnapshot(
            partition, name, Path("/log"), LocalSegments.of(segments), self.lineage(log_start), self.checkpoint
        )

    def lineage(self, log_start: Offset | None = None) -> Lineage:
        """Return the checkpoint, continued down to ``log_start``, or to the last one passed here."""
        self._log_start = self._log_start if log_start is None else log_start
        if self._log_start is None:
            return self.checkpoint
        return continued_down(self.checkpoint, self._log_start, self._epoch_of)

    @property
    def checkpoint(self) -> Lineage:
        return Lineage.of(*self.replica.epochs)

    def _epoch_of(self, offset: Offset) -> LeaderEpoch:
        return LeaderEpoch(next((each.epoch for each in self.replica.log if each.end > offset), -1))

    def open_segment(
        self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> SegmentFiles:
        return _OpenSegment(self, base_offset, next_base)


class _OpenSegment:
    """`SegmentFiles` of a log in memory.

    Now and then its transaction index is damaged, or the transactions that are open before it are unknown.
    """

    def __init__(self, log: HistoryLog, base: Offset, following: Offset) -> None:
        self._log, self._base, self._next = log, base, following
        self.confirm()
        batches = next(found for start, _, found in log.replica.segments() if start == base)
        self._data = b"".join(batch.data for batch in batches)
        self._file: BinaryIO = os.fdopen(os.memfd_create("log"), "w+b")
        self._file.write(self._data)
        self._file.flush()
        self.log_bytes, self.path = len(self._data), Path(f"/log/{base:020d}.log")
        self.log = QuietReader(self._file.fileno(), self.log_bytes, str(self.path))
        self.lineage = log.lineage()
        self.offset_index: bytes | None = None
        self.time_index: bytes | None = None
        fate = log.fate("index", base, following)
        opened = {producer: Offset(begun.base) for producer, begun in log.replica.open(base).items()}
        self.before = OpenBefore(opened, complete=True)
        self.transaction_index = index = log.replica.transaction_index(base, following) or None
        if index is not None and fate.random() < 0.4:
            at = fate.randrange(len(index))
            flipped = index[:at] + bytes([index[at] ^ 1 << fate.randrange(8)]) + index[at + 1 :]
            self.transaction_index = fate.choice((None, flipped, flipped, index[:at], index * 2))
        elif fate.random() < 0.2:
            self.before = OpenBefore()
        self.producer_snapshot = b"snapshot"

    def head(self) -> bytes:
        return self._data[:HEADER_BYTES]

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        behind = ((0, batch.data) for batch in self._log.replica.log if batch.base >= self._next)
        return tuple(decide(dict(opened), behind, "behind"))

    def confirm(self) -> None:
        self._log.snapshot(self._log.partition, NAME)
        rolled = self._log.replica.segments()[:-1]
        if not any(base == self._base and following == self._next for base, following, _ in rolled):
            raise Fenced("the segment left the folder", base=self._base)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
