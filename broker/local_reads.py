"""Reads the local tier: raw batches as the broker stores them, with everything a decoder and a router need."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import BrokerUnavailable, Fenced, OffsetOutOfRange, TimedOut, UnknownTopic
from ..state.ids import BrokerId, TopicIdPartition
from ..state.lineage import EpochEnd, epoch_end
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, LocalBounds
from .answers import FetchSpec, RawOffset
from .bounds import read_bounds, walk_epochs
from .error_codes import OFFSET_OUT_OF_RANGE, LeaderMoved, check
from .raw import EARLIEST, RawClient

R = TypeVar("R")
TIMEOUT_S = 20.0
"""A fail-over after kill -9 takes 7 to 11 s with ``broker.session.timeout.ms=6000`` (measured)."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
BATCH_PREFIX = struct.Struct(">qi")
"""The start of every record batch since Kafka 0.11: its base offset, and the number of bytes after these two fields."""


@dataclass(frozen=True, slots=True)
class LocalFetch:
    """``batches``: complete record batches; the first one holds the requested offset or begins after it.

    ``aborted``: (producer id, first offset) of each aborted transaction in the batches, under read_committed only.
    ``bounds``: the bounds in the same answer.
    """

    batches: bytes
    bounds: LocalBounds
    aborted: tuple[tuple[int, Offset], ...]


class Leadership:
    """The last known leaders, each kept until a call on it fails: hints, never fences. Thread-safe."""

    def __init__(self, raw: RawClient, clock: Clock) -> None:
        self._raw = raw
        self._clock = clock
        self._leaders: dict[tuple[str, int], BrokerId] = {}
        self._lock = threading.Lock()

    def on_leader(self, topic: str, partition: int, call: Callable[[BrokerId], R], timeout_s: float) -> R:
        """Return ``call(leader)``. If it fails, find the leader again and repeat, for at most ``timeout_s`` seconds.

        Only for calls that read. Only BrokerUnavailable (as LeaderMoved during an election) and TimedOut lead to a
        repetition; else the error is raised. Also raises UnknownTopic and AccessDenied.
        """
        deadline = self._clock.monotonic() + timeout_s
        pause = FIRST_PAUSE
        while True:
            try:
                with self._lock:
                    leader = self._leaders.get((topic, partition))
                return call(self._ask(topic, partition) if leader is None else leader)
            except (BrokerUnavailable, TimedOut):
                with self._lock:
                    self._leaders.pop((topic, partition), None)
                if self._clock.monotonic() + pause >= deadline:
                    raise
            self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ask(self, topic: str, partition: int) -> BrokerId:
        answer = self._raw.metadata([topic]).topics.get(topic)
        if answer is None or answer.error is not None:
            raise answer.error if answer and answer.error else UnknownTopic("no such topic", topic=topic)
        state = answer.partitions.get(partition)
        if state is None:
            raise UnknownTopic("no such partition", topic=topic, partition=partition)
        if state.leader is None:
            raise LeaderMoved("the partition has no leader now", topic=topic, partition=partition)
        with self._lock:
            self._leaders[topic, partition] = state.leader
        return state.leader


class LocalReader:
    """Fetches from the partition's leader. Thread-safe; blocking."""

    def __init__(self, raw: RawClient, clock: Clock, timeout_s: float = TIMEOUT_S) -> None:
        """``timeout_s``: seconds for which a call follows a moving leader."""
        self._raw, self._leadership, self._timeout_s = raw, Leadership(raw, clock), timeout_s
        self._lineages: dict[tuple[TopicIdPartition, LeaderEpoch], Lineage] = {}

    def on_leader(self, topic: str, partition: int, call: Callable[[BrokerId], R]) -> R:
        """Return ``call(leader)`` as `Leadership.on_leader` does."""
        return self._leadership.on_leader(topic, partition, call, self._timeout_s)

    def fetch(self, spec: FetchSpec) -> LocalFetch:
        """Return the batches from ``offset`` on: about ``max_bytes``, but at least one if there is one.

        Raises Fenced if the partition has a newer leader epoch than ``leader_epoch``, UnknownTopic if the topic's id is
        not ``topic_id``, and OffsetOutOfRange with the valid range. Also raises AccessDenied, and after ``timeout_s``
        BrokerUnavailable and TimedOut.
        """
        return self.on_leader(spec.topic, spec.partition, lambda broker: self._fetch(broker, spec))

    def bounds(
        self, topic: str, partition: int, epoch: LeaderEpoch | None = None, *, both_tiers: bool = False
    ) -> LocalBounds:
        """Return `read_bounds` of the leader. Without ``epoch``, read them again if the leader changes in between."""

        def ask(broker: BrokerId) -> LocalBounds:
            try:
                return read_bounds(self._raw, broker, topic, partition, epoch, both_tiers=both_tiers)
            except Fenced as error:
                if epoch is not None:
                    raise
                facts = {"topic": topic, "partition": partition}
                raise LeaderMoved("a leader was elected while it was asked", **facts) from error

        return self.on_leader(topic, partition, ask)

    def offset(
        self, topic: str, partition: int, at: TimestampMs, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Offset:
        """Return the offset at `raw.LATEST` or `raw.EARLIEST`."""
        return self._listed(topic, partition, at, isolation).offset

    def offset_at(self, topic: str, partition: int, at: TimestampMs) -> tuple[Offset, TimestampMs] | None:
        """Return the first local offset with a timestamp of ``at`` or later, and the timestamp, or None without one.

        The offset may be below the broker's own log start (reading.md, "By time").
        """
        answer = self._listed(topic, partition, at, Isolation.READ_UNCOMMITTED)
        return (answer.offset, answer.timestamp) if answer.offset >= 0 else None

    def _listed(self, topic: str, partition: int, at: TimestampMs, isolation: Isolation) -> RawOffset:
        def ask(broker: BrokerId) -> RawOffset:
            answer = self._raw.list_offset(broker, topic, partition, at, isolation)
            check(answer.code, topic=topic, partition=partition, broker=broker)
            return answer

        return self.on_leader(topic, partition, ask)

    def epoch_end(self, topic: str, partition: int, epoch: LeaderEpoch) -> Offset:
        """Return the end of an epoch as `RawClient.end_of_epoch` does; -1 if the log never had the epoch."""

        def ask(broker: BrokerId) -> Offset:
            answer = self._raw.end_of_epoch(broker, topic, partition, epoch)
            check(answer.code, topic=topic, partition=partition, leader_epoch=epoch)
            return answer.offset

        return self.on_leader(topic, partition, ask)

    def end_of_epoch(
        self, topic: str, partition: int, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        """Return the end of the newest epoch up to ``epoch`` in the leader's log. Returns None if the log has none.

        Both answers belong to ``leader_epoch``. The log's first epoch only grows during one leader's term, so it is
        requested last: an epoch that is still in the log then was in it when its end was answered. Raises Fenced if a
        newer leader epoch than ``leader_epoch`` exists; else as `bounds`.
        """

        def ask(broker: BrokerId) -> EpochEnd | None:
            facts = {"topic": topic, "partition": partition, "broker": broker, "leader_epoch": leader_epoch}
            end = self._raw.end_of_epoch(broker, topic, partition, epoch, leader_epoch)
            check(end.code, **facts)
            first = self._raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=leader_epoch)
            check(first.code, **facts)
            return epoch_end(epoch, end.leader_epoch, end.offset, first.leader_epoch)

        return self.on_leader(topic, partition, ask)

    def lineage(self, topic: str, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> Lineage:
        """Return the lineage of the leader's log. It is walked once in each leader epoch (`walk_epochs`).

        Raises Fenced if a newer leader epoch exists; else as `bounds`.
        """
        if (lineage := self._lineages.get((partition, leader_epoch))) is None:
            walk = partial(walk_epochs, self._raw, topic=topic, partition=partition.partition, epoch=leader_epoch)
            lineage = self.on_leader(topic, partition.partition, walk).lineage
            self._lineages[partition, leader_epoch] = lineage
        return lineage

    def _fetch(self, broker: BrokerId, spec: FetchSpec) -> LocalFetch:
        answer = self._raw.fetch(broker, spec)
        facts: dict[str, Any] = {"topic": spec.topic, "partition": spec.partition, "offset": spec.offset}
        facts["broker"] = broker
        if answer.code == OFFSET_OUT_OF_RANGE:
            bounds = read_bounds(self._raw, broker, spec.topic, spec.partition, spec.leader_epoch)
            if bounds.local_start <= spec.offset <= bounds.end(spec.isolation):  # the bounds moved in between
                answer = self._raw.fetch(broker, replace(spec, wait_ms=0))
            if answer.code == OFFSET_OUT_OF_RANGE:
                valid = {"valid_start": bounds.local_start, "valid_end": bounds.end(spec.isolation)}
                raise OffsetOutOfRange("the broker does not have this offset", **valid, **facts)
        check(answer.code, **facts)
        ends = LocalBounds(answer.log_start, answer.high_watermark, answer.last_stable_offset, spec.leader_epoch)
        return LocalFetch(whole_batches(answer.batches), ends, answer.aborted)


def whole_batches(data: bytes) -> bytes:
    """Return the complete batches: without the last one, if the broker cut it off at ``max_bytes``."""
    end = 0
    while end + BATCH_PREFIX.size <= len(data):
        following = end + BATCH_PREFIX.size + BATCH_PREFIX.unpack_from(data, end)[1]
        if not end < following <= len(data):
            break
        end = following
    return data if end == len(data) else data[:end]
