"""The in-memory twin of a cluster, for schedulers that interleave agents, lose answers and move leaders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.twins.counting_ids import CountingIds
from tierstate.broker.answers import Place
from tierstate.broker.control import LONGEST_SECONDS, ClusterDescription, OpenTransaction
from tierstate.broker.error_codes import LeaderMoved
from tierstate.broker.groups import GroupPosition, GroupProblem, TopicGroups
from tierstate.broker.topics import PartitionDescription, TopicDescription
from tierstate.runtime.id_source import IdSource
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import (
    AccessDenied,
    BrokerUnavailable,
    Fenced,
    InvalidRequest,
    NotTiered,
    OffsetOutOfRange,
    TierstateError,
    TimedOut,
    UnknownTopic,
)
from tierstate.state.ids import BrokerId, TopicId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.retention import TopicConfig
from tierstate.state.routing import LocalBounds

V = TypeVar("V")


@dataclass(slots=True)
class _Partition:
    leader: BrokerId | None
    epoch: LeaderEpoch
    start: Offset
    end: Offset
    open: dict[int, OpenTransaction] = field(default_factory=dict)

    @property
    def bounds(self) -> LocalBounds:
        stable = min((each.start for each in self.open.values()), default=self.end)
        return LocalBounds(self.start, self.end, stable, self.epoch)


@dataclass(slots=True)
class _Topic:
    topic_id: TopicId
    config: TopicConfig
    partitions: list[_Partition]
    groups: dict[tuple[str, int], Offset | None] = field(default_factory=dict)


class MemoryBroker:
    """A cluster in which every broker has every partition. At first they lead in order of their ids. Thread-safe."""

    def __init__(self, brokers: Iterable[int] = (1,), ids: IdSource | None = None, cluster_id: str = "memory") -> None:
        self._brokers = tuple(sorted(BrokerId(one) for one in brokers))
        self._down: set[BrokerId] = set()
        self._ids = ids or CountingIds()
        self._cluster_id = cluster_id
        self._topics: dict[str, _Topic] = {}
        self._lost_answers = 0
        self._hidden_groups: str | None = None
        self._hidden_transactions: TierstateError | None = None
        self._stale: dict[BrokerId, set[TopicId]] = {}
        self._hidden_topics: frozenset[str] = frozenset()
        self._describes_all = True
        self._lock = threading.RLock()

    # Events that a test causes.

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> TopicId:
        """Create a topic with this configuration, in Kafka's names. Return its id."""
        with self._lock:
            if name in self._topics:
                raise InvalidRequest("topic exists", topic=name)
            leaders = self._brokers
            parts = [
                _Partition(leaders[number % len(leaders)], LeaderEpoch(0), Offset(0), Offset(0))
                for number in range(partitions)
            ]
            topic = _Topic(TopicId.of(self._ids.uuid()), TopicConfig.of(config or {}), parts)
            self._topics[name] = topic
            return topic.topic_id

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Replace all settings of the topic, in Kafka's names."""
        with self._lock:
            self._topic(name).config = TopicConfig.of(config)

    def delete_topic(self, name: str) -> None:
        with self._lock:
            del self._topics[name]

    def restore_topic(self, name: str, topic_id: TopicId, partitions: int = 1) -> None:
        """Create a topic with this very id, as after a restore of the cluster's metadata."""
        with self._lock:
            self.create_topic(name, partitions)
            self._topics[name].topic_id = topic_id

    def remember_topic(self, broker: int, topic_id: TopicId) -> None:
        """Let this broker's metadata be old: it knows this topic, even if the topic was deleted."""
        with self._lock:
            self._stale.setdefault(BrokerId(broker), set()).add(topic_id)

    def catch_up_metadata(self) -> None:
        """Bring every broker's metadata up to date."""
        with self._lock:
            self._stale.clear()

    def hide_topics(self, *names: str, others: bool = False) -> None:
        """Deny the caller DESCRIBE on exactly these topics. ``others``: also on topics that no ACL names."""
        with self._lock:
            self._hidden_topics, self._describes_all = frozenset(names), not others

    def append(self, topic: str, partition: int, records: int) -> Offset:
        """Append so many records. Return the new end."""
        with self._lock:
            part = self._part(topic, partition)
            part.end = Offset(part.end + records)
            return part.end

    def open_transaction(self, topic: str, partition: int, first: Offset | None, producer_id: int = 4000) -> None:
        """Begin this producer's transaction at ``first``, where the last stable offset stays. None ends it."""
        with self._lock:
            part = self._part(topic, partition)
            if first is None:
                part.open.pop(producer_id, None)
            else:
                part.open[producer_id] = OpenTransaction(producer_id, 0, first, TimestampMs(0))

    def hide_transactions(self, why: TierstateError | None) -> None:
        """Answer queries about open transactions with this error from now on; None: answer them again."""
        with self._lock:
            self._hidden_transactions = why

    def elect(self, topic: str, partition: int, leader: int | None, *, end: int | None = None) -> LeaderEpoch:
        """Elect a leader, and return its epoch. ``end``: an unclean election, which loses the records from there on."""
        with self._lock:
            part = self._part(topic, partition)
            part.leader, part.epoch = None if leader is None else BrokerId(leader), LeaderEpoch(part.epoch + 1)
            if end is not None:
                part.end, part.start = Offset(end), Offset(min(part.start, end))
            return part.epoch

    def stop_broker(self, broker: int) -> None:
        """Stop a broker: it does not answer. Its partitions have no other leader until `elect`."""
        with self._lock:
            self._down.add(BrokerId(broker))

    def start_broker(self, broker: int) -> None:
        with self._lock:
            self._down.discard(BrokerId(broker))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        with self._lock:
            self._part(topic, partition)
            self._topics[topic].groups[group, partition] = Offset(offset)

    def join(self, group: str, topic: str, partition: int) -> None:
        """Assign the partition to a member of the group, which may have committed nothing."""
        with self._lock:
            self._part(topic, partition)
            self._topics[topic].groups.setdefault((group, partition), None)

    def hide_groups(self, why: str | None) -> None:
        """Make group listings incomplete because of ``why``; None: complete."""
        with self._lock:
            self._hidden_groups = why

    def lose_answers(self, count: int = 1) -> None:
        """Execute the next ``count`` DeleteRecords, but raise TimedOut to the caller."""
        with self._lock:
            self._lost_answers = count

    # The agent's interface: BrokerControl.

    def cluster(self) -> ClusterDescription:
        with self._lock:
            return ClusterDescription(self._cluster_id, tuple(one for one in self._brokers if one not in self._down))

    def topics(self) -> tuple[TopicDescription, ...]:
        with self._lock:
            return tuple(self.topic(name) for name in sorted(self._topics) if name not in self._hidden_topics)

    def topic(self, name: str) -> TopicDescription:
        with self._lock:
            topic = self._topic(name)
            parts = enumerate(topic.partitions)
            described = tuple(PartitionDescription(number, part.leader, part.epoch) for number, part in parts)
            return TopicDescription(name, topic.topic_id, name.startswith("__"), described)

    def config(self, topic: str) -> TopicConfig:
        with self._lock:
            return self._topic(topic).config

    def bounds(
        self, topic: str, partition: int, *, broker: BrokerId | None = None, epoch: LeaderEpoch | None = None
    ) -> LocalBounds:
        with self._lock:
            if topic in self._hidden_topics:
                raise AccessDenied("the broker refuses these credentials", topic=topic)
            part = self._part(topic, partition)
            self._reach(broker if broker is not None else part.leader)
            if broker is not None and broker != part.leader:
                raise LeaderMoved("the broker does not lead this partition now", topic=topic, broker=broker)
            if epoch is not None and epoch > part.epoch:
                raise LeaderMoved("the broker has not heard of this epoch", topic=topic, leader_epoch=epoch)
            if epoch is not None and epoch < part.epoch:
                raise Fenced("a newer leader epoch exists", topic=topic, leader_epoch=epoch)
            return part.bounds

    def configs(self, topics: Collection[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        with self._lock:
            self._reach(broker)
            return {topic: _answer(self.config, topic) for topic in topics}

    def bounds_of(self, places: Collection[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        with self._lock:
            self._reach(broker)
            return {place: _answer(self.bounds, *place, broker=broker) for place in places}

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        with self._lock:
            self._reach(broker)
            part = self._part(topic, partition)
            if self._hidden_transactions is not None:
                raise self._hidden_transactions
            return tuple(sorted(part.open.values(), key=lambda each: each.start))

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        with self._lock:
            self._reach(broker)
            names = [name for name, topic in self._topics.items() if topic.topic_id == topic_id]
            if self._hidden_topics.intersection(names):
                raise AccessDenied("the broker refuses these credentials", topic_id=topic_id)
            return bool(names) or topic_id in self._stale.get(broker, ())

    def may_describe(self, topics: Sequence[str], *, broker: BrokerId) -> bool:
        with self._lock:
            self._reach(broker)
            return self._describes_all and not self._hidden_topics.intersection(topics)

    def groups(self, topic: str) -> TopicGroups:
        with self._lock:
            found = self._topics[topic].groups if topic in self._topics else {}
            positions = tuple(GroupPosition(group, part, offset) for (group, part), offset in sorted(found.items()))
            hidden = () if self._hidden_groups is None else (GroupProblem(None, self._hidden_groups),)
            return TopicGroups(positions, hidden)

    def groups_of(self, topics: Collection[str]) -> dict[str, TopicGroups]:
        return {topic: self.groups(topic) for topic in topics}

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
    ) -> Offset:
        if before < 0 or not 0 < timeout <= LONGEST_SECONDS:
            raise InvalidRequest("DeleteRecords needs an offset and a short deadline", before=before, timeout=timeout)
        with self._lock:
            self._reach(broker)
            part = self._part(topic, partition)
            if part.leader != broker:
                raise Fenced("this broker does not lead the partition: nothing was deleted", broker=broker)
            if "delete" not in self._topic(topic).config.cleanup_policy:
                raise NotTiered("the topic's policy forbids this", topic=topic)
            if before > part.end:
                valid = {"valid_start": part.start, "valid_end": part.end}
                raise OffsetOutOfRange("DeleteRecords past the high watermark", **valid, before=before)
            part.start = max(part.start, before)
            if self._lost_answers:
                self._lost_answers -= 1
                raise TimedOut("DeleteRecords was sent, its outcome is unknown", broker=broker)
            return part.start

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise UnknownTopic("no such topic or partition", topic=name)
        return self._topics[name]

    def _part(self, topic: str, partition: int) -> _Partition:
        parts = self._topic(topic).partitions
        if not 0 <= partition < len(parts):
            raise UnknownTopic("no such topic or partition", topic=topic, partition=partition)
        return parts[partition]

    def _reach(self, broker: BrokerId | None) -> None:
        if broker is None:
            raise LeaderMoved("the partition has no leader now")
        if broker not in self._brokers or broker in self._down:
            raise BrokerUnavailable("the cluster has no such broker now", broker=broker)


def _answer(ask: Callable[..., V], *given: object, **named: object) -> V | TierstateError:
    try:
        return ask(*given, **named)
    except TierstateError as error:
        return error
