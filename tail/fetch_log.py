"""Implements `LocalLog` by Fetch requests to the partitions' leaders: an agent needs no access to any broker's disk.

Each look at a partition sends one Fetch with its topic id and leader epoch. So a broker that no longer leads it, or
that has another topic of this name, refuses the request. The data goes into a `Spool`, which is divided into pieces;
copied pieces are removed. Below them, the log's segments are those that the facts name. The epoch checkpoint is
requested with OffsetForLeaderEpoch, once a leader epoch (`broker/bounds.py`).

Disk: at most `RollPolicy.spool_bytes`, and a batch for each partition. Memory: the answer to one Fetch for each thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from ..broker.answers import FetchSpec, RawFetch
from ..broker.bounds import WalkedLog, walk_epochs
from ..broker.control import BrokerControl
from ..broker.error_codes import OFFSET_OUT_OF_RANGE, error_of
from ..broker.local_reads import whole_batches
from ..broker.raw import RawClient
from ..log.batch import HEADER_BYTES, first_epoch, iter_batches
from ..log.folder_events import Touched
from ..log.local_log import LocalSnapshot
from ..log.segment import LogSegment
from ..log.transaction_index import OpenBefore, open_before
from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import BrokerUnavailable, CorruptData, Fenced, NotTiered, Unavailable
from ..state.ids import COPIER, BrokerId, TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.lineage import continued_down
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import Isolation
from ..state.segment import RemoteSegment
from .spool import NO_EPOCH, Spool, SpooledSegment, above, first_missing, local_segments

METADATA_S = 2.0
FETCH_BYTES = 2 << 20
"""Bytes of one Fetch. Larger ones cost more CPU, because they leave its cache; smaller ones return more bytes twice."""
LONGEST_LOOK_S = 5.0
"""The most seconds that one look fetches before it returns."""
SHARE = 4
"""While more than half of the spool is used, a piece ends at 1/`SHARE` of the partition's equal part of the spool."""
SMALLEST_PART_BYTES = 1 << 20
"""The least size of the spool for each partition."""
_FIRST = Offset(0)
SnapshotOf = Callable[[RemoteSegment], bytes | None]
"""Returns the producer snapshot of a copied segment: the state at the offset after it. None: it cannot be read."""


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """A piece ends at ``bytes``, or ``after_s`` seconds after its first batch came. All take up to ``spool_bytes``."""

    bytes: int
    after_s: float
    spool_bytes: int


@dataclass(frozen=True, slots=True)
class _Led:
    """A partition with a leader, by the metadata."""

    name: str
    broker: BrokerId
    epoch: LeaderEpoch


@dataclass(slots=True)
class _Tail:
    """The state of one partition. ``epoch``: that of the walk which found ``checkpoint``; None before the first one.

    ``undecided``: an unknown transaction may be open at this offset, where the spool begins; None if none is.
    """

    spool: Spool
    lock: threading.RLock = field(default_factory=threading.RLock)
    epoch: LeaderEpoch | None = None
    checkpoint: Lineage = field(default_factory=Lineage)
    lineage: Lineage = field(default_factory=Lineage)
    log_start: Offset = _FIRST
    high_watermark: Offset = _FIRST
    last_stable: Offset = _FIRST
    undecided: Offset | None = None
    used: int = 0

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch of the record before ``offset``, or `NO_EPOCH`."""
        epoch = self.lineage.epoch_at(offset - 1)
        return NO_EPOCH if epoch is None else epoch


class FetchLog(AbstractContextManager["FetchLog"]):
    """The logs of the cluster's partitions whose facts are in an owned tier-state partition. Thread-safe.

    Looks at one partition wait for each other. Only a look fetches the partition.
    """

    agent_id = COPIER

    def __init__(
        self,
        raw: RawClient,
        control: BrokerControl,
        owned: Callable[[], Collection[int]],
        mapped: int,
        folder: Path,
        roll: RollPolicy,
        clock: Clock,
        snapshot_of: SnapshotOf,
    ) -> None:
        self._raw, self._control, self._owned, self._mapped = raw, control, owned, mapped
        self._folder, self._roll, self._clock, self._snapshot_of = folder, roll, clock, snapshot_of
        self._lock = threading.Lock()
        self._listed_at = float("-inf")
        self._listed_for: Collection[int] = ()
        self._listed: Mapping[TopicIdPartition, str] = {}
        self._led: Mapping[TopicIdPartition, _Led] = {}
        self._brokers: frozenset[BrokerId] = frozenset()
        self._tails: dict[TopicIdPartition, _Tail] = {}
        self._used = 0
        self.view: Callable[[TopicIdPartition], PartitionView] | None = None
        """Returns the facts about a partition. Nothing is fetched before it is set."""

    @property
    def broker(self) -> BrokerId:
        if not self._brokers:
            raise BrokerUnavailable("no partition has a leader")
        return min(self._brokers)

    def broker_of(self, partition: TopicIdPartition) -> BrokerId:
        return self._leader(partition).broker

    def require_owned(self, partition: TopicIdPartition) -> None:
        if tier_partition_of(partition, self._mapped) not in self._owned():
            raise Fenced(
                "another agent owns the partition, or the group did not confirm this agent", partition=partition
            )

    def partitions(self) -> Mapping[TopicIdPartition, str]:
        with self._lock:
            now, owned = self._clock.monotonic(), frozenset(self._owned())
            if now - self._listed_at < METADATA_S and owned == self._listed_for:
                return self._listed
            led = {
                TopicIdPartition(topic.topic_id, each.partition): _Led(topic.name, each.leader, each.leader_epoch)
                for topic in self._control.topics()
                for each in topic.partitions
                if each.leader is not None and each.leader_epoch is not None
            }
            self._brokers = frozenset(each.broker for each in led.values())
            led = {each: leader for each, leader in led.items() if tier_partition_of(each, self._mapped) in owned}
            self._listed_at, self._listed_for, self._led = now, owned, led
            listed = {partition: each.name for partition, each in led.items()}
            if listed != self._listed:
                self._listed = listed
            for partition in self._tails.keys() - listed.keys():
                self._drop(partition)
            return self._listed

    def _drop(self, partition: TopicIdPartition) -> None:
        """Remove the data of a partition, unless a look at it is under way: then the next `partitions` does.

        That look would use a spool without pieces, or append to the files of the next spool in the same folder.
        """
        tail = self._tails[partition]
        if tail.lock.acquire(blocking=False):
            try:
                del self._tails[partition]
                self._used -= tail.used
                tail.spool.clear()
            finally:
                tail.lock.release()

    def listed(self) -> Mapping[TopicIdPartition, str]:
        return self._listed

    def touched(self) -> Touched:
        return Touched(frozenset(), folders=True, blind=True)  # `partitions` is cheap, and no event reports new data

    def snapshot(self, partition: TopicIdPartition, name: str, log_start: Offset | None = None) -> LocalSnapshot:
        """Fetch new data and the log start, and return the partition's state. Also raises the errors of a Fetch."""
        with self._looking(partition) as tail:
            view = self._view(partition)
            try:
                self._advance(partition, tail, view)
            except (CorruptData, NotTiered):
                if not tail.spool.size_bytes:
                    raise
                tail.spool.roll()  # the records before the bad batch are copied first; then the error is raised
            if tail.undecided is not None:  # the Fetch may show that the unknown transaction has ended
                self._find_begin(partition, tail, view)
            segments = local_segments(view, tail.log_start, tail.spool.pieces)
            return LocalSnapshot(partition, name, tail.spool.folder, segments, tail.lineage, tail.checkpoint)

    def open_segment(
        self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> SpooledSegment:
        with self._looking(partition) as tail:
            for piece, following in zip(tail.spool.pieces, tail.spool.pieces[1:], strict=False):
                if (piece.base, piece.next_base) == (base_offset, next_base):
                    after = tail.spool.snapshot(following.base, following.epoch) if following.before.complete else None
                    later = partial(self.later, partition, name, next_base)
                    held = partial(self._holds, partition, name, base_offset, next_base)
                    return SpooledSegment(replace(piece), tail.lineage, after or b"", later, held)
        raise Fenced("the segment is not in the spool", partition=partition, topic=name, offset=base_offset)

    def _holds(self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset) -> bool:
        """Return whether a new look still finds this rolled segment. Raises the errors of `snapshot`."""
        current = self.snapshot(partition, name).segments
        segments = current.rolled[(at := current.number_at(base_offset)) : at + 1]
        return [(each.base_offset, each.next_base) for each in segments] == [(base_offset, next_base)]

    def later(self, partition: TopicIdPartition, name: str, offset: Offset) -> Iterator[tuple[int, bytes]]:
        """Yield (byte position, complete batches) from ``offset`` up to the high watermark, first of the spool.

        Raises Fenced if the log changes during the reads.
        """
        at = offset
        with self._looking(partition) as tail:
            epoch = tail.epoch
            pieces = [replace(each) for each in tail.spool.pieces if each.base >= offset and each.size_bytes]
        for piece in pieces:
            try:
                yield from LogSegment(piece.path).pieces(size=piece.size_bytes)
            except FileNotFoundError as error:
                raise Fenced("a later segment left the spool meanwhile", file=piece.path) from error
            at = piece.next_base
        while at < tail.high_watermark:
            answer = self._fetch(partition, tail, at, FETCH_BYTES)
            data = whole_batches(answer.batches)
            if tail.epoch != epoch or not data:
                raise Fenced("the log changed during the reads", partition=partition, topic=name, offset=at)
            yield 0, data
            at = Offset([batch.last_offset for batch in iter_batches(data, source=name, verify_crc=False)][-1] + 1)

    def close(self) -> None:
        """Remove the data in the spools. The snapshots of open transactions stay for the next process."""
        for tail in self._tails.values():
            tail.spool.clear()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _view(self, partition: TopicIdPartition) -> PartitionView:
        if self.view is None:
            raise Unavailable("the view is not open yet", partition=partition)
        return self.view(partition)

    def _leader(self, partition: TopicIdPartition) -> _Led:
        led = self._led.get(partition)
        if led is None:
            raise Fenced("the partition has no leader, or another agent owns it", partition=partition)
        return led

    @contextmanager
    def _looking(self, partition: TopicIdPartition) -> Iterator[_Tail]:
        """Hold the lock of a partition, so that its tail is not dropped. Raises Fenced if it is not listed."""
        while True:
            tail = self._tail(partition)
            with tail.lock:
                if self._tails.get(partition) is tail:  # otherwise it was dropped before the lock was held
                    yield tail
                    return

    def _tail(self, partition: TopicIdPartition) -> _Tail:
        self._leader(partition)
        with self._lock:
            tail = self._tails.get(partition)
            if tail is None:
                name = sha256(f"{partition.topic_id}".encode()).hexdigest()[:16]
                tail = self._tails[partition] = _Tail(Spool(self._folder / f"{name}-{partition.partition}"))
            return tail

    def _advance(self, partition: TopicIdPartition, tail: _Tail, view: PartitionView) -> None:
        """Fetch until a piece can be copied, the high watermark is reached, or the time of a look is over."""
        led, spool = self._leader(partition), tail.spool
        if tail.epoch != led.epoch:
            walked = walk_epochs(self._raw, led.broker, led.name, partition.partition, led.epoch)
            _begin_epoch(tail, led.epoch, walked)
        continued = continued_down(tail.lineage, tail.log_start, partial(self._epoch_of, partition, tail))
        tail.lineage = above(continued, tail.log_start)  # the requests may have moved it
        deadline = self._clock.monotonic() + LONGEST_LOOK_S
        self._find_begin(partition, tail, view)
        while True:
            room = self._piece_bytes() - spool.active.size_bytes
            enough = bool(spool.rolled) and room <= 0
            at, size = (tail.high_watermark, 1) if enough else (spool.active.next_base, max(1, min(room, FETCH_BYTES)))
            answer = self._fetch(partition, tail, at, size)
            appended = 0 if enough else spool.append(answer.batches, self._clock.monotonic())
            end = spool.active.next_base
            is_border = end < answer.high_watermark and len(answer.batches) < size  # a Fetch ends where a segment ends
            full = spool.active.size_bytes >= self._piece_bytes()
            old = self._clock.monotonic() - spool.active.began_s >= self._roll.after_s
            self._account(tail)
            if (appended and is_border) or ((full or old) and not enough):
                spool.roll()
            if enough or spool.rolled or not appended or end >= answer.high_watermark:
                return
            if self._clock.monotonic() > deadline:
                return

    def _epoch_of(self, partition: TopicIdPartition, tail: _Tail, offset: Offset) -> LeaderEpoch:
        """Return the leader epoch of the batch at ``offset``. Raises the errors of `_fetch`."""
        batch = self._fetch(partition, tail, offset, 1).batches
        if len(batch) < HEADER_BYTES:
            raise Unavailable("the leader does not return this offset yet", partition=partition, offset=offset)
        return first_epoch(batch)

    def _find_begin(self, partition: TopicIdPartition, tail: _Tail, view: PartitionView) -> None:
        """Remove copied pieces. Begin the spool at the first offset that is not copied, unless it has this offset."""
        spool, start = tail.spool, first_missing(view, tail.lineage, tail.log_start)
        spool.drop_below(start)
        decided_now = tail.undecided is not None and tail.last_stable > tail.undecided
        if spool.pieces and spool.pieces[0].base <= start <= spool.active.next_base and not decided_now:
            return
        before, decided = self._open_before(partition, tail, view, start)
        spool.begin(start, tail.epoch_before(start), before, decided)

    def _open_before(
        self, partition: TopicIdPartition, tail: _Tail, view: PartitionView, offset: Offset
    ) -> tuple[OpenBefore, Offset]:
        """Return the transactions that are open at ``offset``, and an offset below which all of them have ended.

        They are complete if the spool or the copied segment before the offset has them. Otherwise the leader names
        those that were aborted later; for the others only the last stable offsets in indexes would be needed. It names
        no transaction that is still open. Records behind an open transaction are copied only after its end. The spool
        then begins again, so that the index of the segment with the transaction's marker lists the transaction.
        """
        tail.undecided = None
        epoch = tail.epoch_before(offset)
        before = tail.spool.kept_before(offset, epoch)
        if not before.complete and offset and (owner := view.coverage.at(offset - 1)) is not None:
            if owner.segment.offsets.end == offset - 1:
                before = open_before(offset, self._snapshot_of(owner.segment) or None, owner.segment.object_key)
        if before.complete:
            return before, offset
        answer = self._fetch(partition, tail, offset, 1, Isolation.READ_COMMITTED)
        aborted = {producer: first for producer, first in answer.aborted if first < offset}
        # a last stable offset is never below the log start, even if a transaction is open there
        tail.undecided = offset if answer.last_stable_offset <= offset else None
        return OpenBefore(aborted), answer.high_watermark

    def _fetch(
        self,
        partition: TopicIdPartition,
        tail: _Tail,
        offset: Offset,
        max_bytes: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> RawFetch:
        """Send one Fetch to the leader of the epoch that was walked. Raises Fenced if there is a newer one.

        Also raises LeaderMoved, UnknownTopic, AccessDenied, and Unavailable if the leader lacks the offset.
        """
        led = self._leader(partition)
        facts = {"topic": led.name, "partition": partition.partition, "broker": led.broker, "leader_epoch": led.epoch}
        if led.epoch != tail.epoch:
            raise Fenced("the leader epoch changed", **facts)
        spec = FetchSpec(
            led.name, partition.partition, offset, max_bytes, isolation, led.epoch, topic_id=partition.topic_id
        )
        answer = self._raw.fetch(led.broker, spec)
        if answer.code == OFFSET_OUT_OF_RANGE:
            tail.epoch = None  # the log start moved above the offset, or the log was truncated: begin again
            raise Unavailable("the log moved: the leader no longer has this offset", offset=offset, **facts)
        if (error := error_of(answer.code, **facts)) is not None:
            raise error
        tail.high_watermark, tail.last_stable = answer.high_watermark, answer.last_stable_offset
        if answer.log_start > tail.log_start:
            tail.log_start = answer.log_start
            tail.checkpoint, tail.lineage = (above(each, answer.log_start) for each in (tail.checkpoint, tail.lineage))
        return answer

    def _piece_bytes(self) -> int:
        """Return the size at which a partition's piece must end so that the spool keeps its limit."""
        with self._lock:
            used, tails = self._used, len(self._tails)
        if used < self._roll.spool_bytes // 2:
            return self._roll.bytes
        return min(self._roll.bytes, self._roll.spool_bytes // (SHARE * tails))

    def _account(self, tail: _Tail) -> None:
        with self._lock:
            before, tail.used = tail.used, tail.spool.size_bytes
            self._used += tail.used - before


def _begin_epoch(tail: _Tail, epoch: LeaderEpoch, walked: WalkedLog) -> None:
    """Begin again with the log of this epoch's leader: an unclean election may have replaced what was fetched."""
    tail.checkpoint = tail.lineage = walked.lineage
    tail.log_start, tail.epoch = walked.log_start, epoch
    tail.spool.clear()
