"""The leaders of a history as agents that copy by Fetch ask them: a twin of `RawClient` and of the metadata.

The rules are Kafka's (`Partition.checkCurrentLeaderEpoch`, `UnifiedLog.read`, `collectAbortedTransactions`). Fetch
names a topic id and a leader epoch; ListOffsets and OffsetForLeaderEpoch name a topic by its name alone. A Fetch
returns whole batches from the one that holds the offset, never across a segment of the broker, and nothing above the
high watermark, which lags behind now and then.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.histories.cluster import NAME, Cluster, HistoryControl
from tests.histories.epoch_cache import earliest_epoch, end_offset_for
from tests.histories.replica import Broker
from tierstate.broker.answers import FetchSpec, RawFetch, RawOffset
from tierstate.broker.topics import TopicDescription
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import BrokerUnavailable, TimedOut
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation

OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, FENCED, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 1, 3, 6, 74, 75, 100
NO_TIME = TimestampMs(-1)


class FetchedCluster(Cluster):
    """A cluster whose topic may be deleted and re-created: then ``successor`` has the name, and another topic id."""

    successor: Cluster | None = None
    fences_trims = True
    """A DeleteRecords reaches its broker in the epoch in which it was sent, or never."""

    def trim(self, broker: int, epoch: int, before: int) -> None:
        super().trim(broker, epoch if self.fences_trims else self.epoch, before)

    @property
    def named(self) -> Cluster:
        """Return the topic that has the name now; it may not exist."""
        return self.successor or self


class FetchedControl(HistoryControl):
    """The answers that a process far from the brokers gets. Its metadata is old now and then."""

    def __init__(self, cluster: FetchedCluster, freeze: Callable[[], None] = lambda: None) -> None:
        super().__init__(cluster, freeze)
        self._both = cluster
        self._topics = super().topics()

    @property
    def _cluster(self) -> Cluster:
        return self._both.named

    def topics(self) -> tuple[TopicDescription, ...]:
        if self._cluster.rnd.random() < 0.9:
            self._topics = super().topics()
        return self._topics


class HistoryRaw:
    """Answers the requests of `FetchLog` and of `walk_epochs`. ``between`` is called before each answer."""

    def __init__(self, cluster: FetchedCluster, between: Callable[[], None]) -> None:
        self._both, self._between = cluster, between

    def fetch(self, broker: BrokerId, spec: FetchSpec) -> RawFetch:
        cluster = self._now()
        code = self._code(broker, spec.leader_epoch)
        if spec.topic_id is not None and code in (0, UNKNOWN_TOPIC):
            code = code if cluster.exists and cluster.partition.topic_id == spec.topic_id else UNKNOWN_TOPIC_ID
        replica = cluster.brokers[broker]
        if code == 0 and not replica.start <= spec.offset <= replica.end:
            code = OUT_OF_RANGE
        if code:
            return RawFetch(code, b"", Offset(-1), Offset(-1), Offset(-1), ())
        stable = min((begun.base for begun in replica.open().values()), default=replica.end)
        limit = replica.end
        if cluster.rnd.random() < 0.1:  # a follower is behind, or the leader is new
            limit = cluster.rnd.choice([replica.end, *(batch.end for batch in replica.log[-4:])])
        limit = max(limit, replica.start)
        committed = spec.isolation is Isolation.READ_COMMITTED
        data, upper = _read(replica, spec, min(limit, stable) if committed else limit)
        aborted = _aborted(replica, spec.offset, upper) if committed else ()
        stable = min(max(stable, replica.start), limit)
        return RawFetch(0, data, Offset(limit), Offset(stable), Offset(replica.start), aborted)

    def list_offset(
        self,
        broker: BrokerId,
        topic: str,
        partition: int,
        timestamp: TimestampMs,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        leader_epoch: LeaderEpoch | None = None,
    ) -> RawOffset:
        """Return the start of the log: no other timestamp is asked for."""
        cluster = self._now()
        if (code := self._code(broker, leader_epoch)) != 0:
            return RawOffset(code, Offset(-1), NO_TIME, None)
        replica = cluster.brokers[broker]
        return _answer(earliest_epoch(replica.epochs, replica.start), replica.start)

    def end_of_epoch(
        self,
        broker: BrokerId,
        topic: str,
        partition: int,
        epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch | None = None,
    ) -> RawOffset:
        cluster = self._now()
        if (code := self._code(broker, leader_epoch)) != 0:
            return RawOffset(code, Offset(-1), NO_TIME, None)
        replica = cluster.brokers[broker]
        return _answer(*end_offset_for(replica.epochs, replica.end, epoch))

    def _now(self) -> Cluster:
        """Let something happen, or fail. Return the topic that has the name then."""
        self._between()
        cluster = self._both.named
        chance = cluster.rnd.random()
        if chance < 0.004:
            raise BrokerUnavailable("the broker does not answer", topic=NAME)
        if chance < 0.006:
            raise TimedOut("the broker does not answer in time", topic=NAME)
        return cluster

    def _code(self, broker: BrokerId, epoch: LeaderEpoch | None) -> int:
        """Return the error code of a broker's answer to a request of this epoch (None: of any epoch); 0 for none."""
        cluster = self._both.named
        if not cluster.exists:
            return UNKNOWN_TOPIC
        if broker != cluster.leader.number:
            return NOT_LEADER
        if epoch is None or epoch == cluster.epoch:
            return 0
        return FENCED if epoch < cluster.epoch else UNKNOWN_EPOCH


def _answer(epoch: int, offset: int) -> RawOffset:
    return RawOffset(0, Offset(offset), NO_TIME, None if epoch < 0 else LeaderEpoch(epoch))


def _read(replica: Broker, spec: FetchSpec, limit: int) -> tuple[bytes, int]:
    """Return the bytes below ``limit``, with a last batch that may be cut off, and the end of the segment."""
    for base, following, batches in replica.segments():
        if base <= spec.offset < following:
            found = [batch.data for batch in batches if batch.end > spec.offset and batch.end <= limit]
            return b"".join(found)[: max(spec.max_bytes, len(found[0]))] if found else b"", following
    return b"", replica.end


def _aborted(replica: Broker, offset: int, upper: int) -> tuple[tuple[int, Offset], ...]:
    """Return the aborted transactions that overlap the offsets from ``offset`` to below ``upper``."""
    opened: dict[int, int] = {}
    found: list[tuple[int, Offset]] = []
    for batch in replica.log:
        if not batch.is_marker and batch.producer >= 0:
            opened.setdefault(batch.producer, batch.base)
        elif batch.is_marker and (first := opened.pop(batch.producer, None)) is not None and batch.aborts:
            if batch.base >= offset and first < upper:
                found.append((batch.producer, Offset(first)))
    return tuple(found)
