"""The protocol through which agents and commands use a cluster: leadership, bounds, truncation, groups.

Two implementations pass one contract suite (`tests/broker/test_broker_control.py`): the one for Kafka in this file, and
the in-memory one in `tests/twins/memory_broker.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka.protocol.admin.transactions import DescribeProducersRequest

from ..state.epochs import LeaderEpoch
from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    CorruptData,
    Fenced,
    InvalidRequest,
    OffsetOutOfRange,
    TierstateError,
    UnknownTopic,
)
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, TimestampMs
from ..state.retention import TopicConfig
from ..state.routing import LocalBounds
from .answers import Address, Place, RawMetadata
from .bounds import read_bounds, read_bounds_of
from .error_codes import OFFSET_OUT_OF_RANGE, LeaderMoved, check
from .groups import TopicGroups, read_groups
from .local_reads import LocalReader
from .raw import RawClient
from .topics import TopicDescription, describe_topic, describe_topics, read_config, read_configs

LONGEST_SECONDS = 5.0
NOBODYS_TOPIC = "tierstate.may.i.describe.every.topic"
"""No ACL has this name or a prefix of it. So DESCRIBE on it needs the right on all topics (or no authorizer)."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """``start``: the offset of its first record in the partition. ``last_timestamp``: the time of the producer's newest
    batch in the partition, by the producer's clock; None: unknown.
    """

    producer_id: int
    producer_epoch: int
    start: Offset
    last_timestamp: TimestampMs | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """``cluster_id``: as in each log folder's ``meta.properties``. ``addresses``: as the brokers advertise them."""

    cluster_id: str
    brokers: tuple[BrokerId, ...]
    addresses: Mapping[BrokerId, Address] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The brokers' hosts, sorted, each once."""
        return tuple(sorted({host for host, _ in self.addresses.values()}))


class TopicDirectory(Protocol):
    """The existing topics, by a cluster's metadata or by facts alone (`app/opening/bucket_connection.py`)."""

    def cluster(self) -> ClusterDescription: ...

    def topics(self) -> tuple[TopicDescription, ...]:
        """Return every topic that these credentials may see, by name. Unchanged topics may be the same tuple."""

    def topic(self, name: str) -> TopicDescription:
        """Return the description of a topic. Raises UnknownTopic."""

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        """Return whether this broker's metadata has the topic id. The metadata may be old: ask two brokers, twice.

        Raises AccessDenied if the topic exists, but these credentials may not DESCRIBE it. Also raises InvalidRequest.
        """


class BrokerControl(TopicDirectory, Protocol):
    """Thread-safe; blocking, with a deadline. All methods also raise BrokerUnavailable, TimedOut, AccessDenied."""

    def config(self, topic: str) -> TopicConfig:
        """Return the effective settings of a topic. Raises UnknownTopic."""

    def bounds(
        self, topic: str, partition: int, *, broker: BrokerId | None = None, epoch: LeaderEpoch | None = None
    ) -> LocalBounds:
        """Return the log's bounds on ``broker``; None: on the leader.

        Raises Fenced if a newer epoch than ``epoch`` exists, LeaderMoved (a BrokerUnavailable) if ``broker`` does not
        lead or does not know ``epoch`` yet, and UnknownTopic.
        """

    def configs(self, topics: Collection[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        """Return the settings, or the error of `config`, for each topic, by few requests to ``broker``."""

    def bounds_of(self, places: Collection[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        """Return the bounds, or the error of `bounds`, for each partition, by few requests to ``broker``."""

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        """Return the open transactions, lowest start first. On the leader, the first one determines the last stable
        offset. A follower also answers (seen on 4.3.0), by the records that it has fetched.

        Raises LeaderMoved if the broker has no replica (yet), AccessDenied without READ on the topic, InvalidRequest if
        the broker is too old, UnknownTopic, and CorruptData.
        """

    def may_describe(self, topics: Sequence[str], *, broker: BrokerId) -> bool:
        """Return whether ``broker`` allows to DESCRIBE these topics, which need not exist, and every other topic.

        An ACL that denies one name overrides an ACL that allows all names, so pass every topic that matters.
        """

    def groups(self, topic: str) -> TopicGroups:
        """Return the groups' positions on a topic, and why others are unknown (`TopicGroups.why_incomplete`)."""

    def groups_of(self, topics: Collection[str]) -> dict[str, TopicGroups]:
        """Return the result of `groups` for each topic, by listing the groups only once."""

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
    ) -> Offset:
        """Delete records below ``before`` on ``broker``, and return the low watermark over its replicas.

        Raises Fenced if this broker does not lead, OffsetOutOfRange if ``before`` is past the high watermark, and
        NotTiered if the topic does not allow it: nothing was deleted. Raises BrokerUnavailable if the request was not
        sent or the broker failed. Raises TimedOut if records may be deleted, now or later: then read the bounds.
        """


class KafkaControl:
    """The `BrokerControl` of a real cluster."""

    def __init__(self, raw: RawClient, reads: LocalReader) -> None:
        self._raw, self._reads = raw, reads
        self._described: tuple[RawMetadata, tuple[TopicDescription, ...]] | None = None

    def cluster(self) -> ClusterDescription:
        metadata = self._raw.metadata()
        return ClusterDescription(metadata.cluster_id, tuple(sorted(metadata.brokers)), metadata.brokers)

    def topics(self) -> tuple[TopicDescription, ...]:
        metadata = self._raw.metadata(None)
        latest = self._described
        if latest is None or latest[0] is not metadata:
            latest = self._described = metadata, describe_topics(metadata)
        return latest[1]

    def topic(self, name: str) -> TopicDescription:
        return describe_topic(self._raw, name)

    def config(self, topic: str) -> TopicConfig:
        return read_config(self._raw, topic)

    def bounds(
        self, topic: str, partition: int, *, broker: BrokerId | None = None, epoch: LeaderEpoch | None = None
    ) -> LocalBounds:
        if broker is not None:
            return read_bounds(self._raw, broker, topic, partition, epoch)
        return self._reads.bounds(topic, partition, epoch)

    def configs(self, topics: Collection[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        return read_configs(self._raw, broker, topics)

    def bounds_of(self, places: Collection[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        return read_bounds_of(self._raw, broker, dict.fromkeys(places))

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        # DescribeProducers (KIP-664, Kafka 2.8); only the coordinator knows a transaction's begin time and id
        query = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
        answer = self._raw.ask(broker, DescribeProducersRequest(topics=[query], min_version=0, max_version=0))
        answers = {(each.name, part.partition_index): part for each in answer.topics for part in each.partitions}
        if (topic, partition) not in answers:
            raise CorruptData("the broker's answer leaves a partition out", request="DescribeProducers", broker=broker)
        state = answers[topic, partition]
        check(state.error_code, topic=topic, partition=partition, broker=broker)
        transactions = [
            OpenTransaction(
                each.producer_id,
                each.producer_epoch,
                Offset(each.current_txn_start_offset),
                TimestampMs(each.last_timestamp) if each.last_timestamp >= 0 else None,
            )
            for each in state.active_producers
            if each.current_txn_start_offset >= 0
        ]
        return tuple(sorted(transactions, key=lambda each: each.start))

    # The next two follow Kafka's `KafkaApis.handleTopicMetadataRequest`. A Metadata request by topic id (version 12,
    # Kafka 3.1) is answered UNKNOWN_TOPIC_ID only if the broker's metadata lacks the id. If the topic exists but the
    # caller may not DESCRIBE it, the answer is TOPIC_AUTHORIZATION_FAILED: ids are no secrets (seen on 4.3.0). A
    # request by name is refused if the caller may not DESCRIBE the name, whether or not the topic exists. So the answer
    # about a name that no topic has depends on rights alone.

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        answers = self._raw.topics_on(broker, [topic_id])
        if len(answers) != 1 or answers[0].topic_id != topic_id:
            raise BrokerUnavailable("the broker answered about another topic", broker=broker, topic_id=topic_id)
        error = answers[0].error
        if isinstance(error, UnknownTopic):
            return False
        if error is not None and not isinstance(error, BrokerUnavailable):
            raise error
        return True  # a topic without a leader exists too

    def may_describe(self, topics: Sequence[str], *, broker: BrokerId) -> bool:
        names = sorted({NOBODYS_TOPIC, *topics})
        answers = self._raw.topics_on(broker, names)
        if sorted(topic.name for topic in answers) != names:
            raise BrokerUnavailable("the broker answered about other topics", broker=broker)
        return not any(isinstance(topic.error, AccessDenied) for topic in answers)

    def groups(self, topic: str) -> TopicGroups:
        return self.groups_of([topic])[topic]

    def groups_of(self, topics: Collection[str]) -> dict[str, TopicGroups]:
        return read_groups(self._raw, topics)

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
    ) -> Offset:
        # DeleteRecords is the only request of tierstate that makes a broker drop data. It has no leader epoch and no
        # topic id, and any leader that receives it executes it. So it is sent once, to one broker, with a short
        # deadline, and is never routed to the current leader (leader.md, "Trim the local tier").
        if before < 0:  # -1 would mean "everything up to the high watermark"
            raise InvalidRequest("DeleteRecords needs an offset", before=before)
        if not 0 < timeout <= LONGEST_SECONDS:
            raise InvalidRequest("DeleteRecords must end soon", timeout=timeout, longest=LONGEST_SECONDS)
        code, low_watermark = self._raw.delete_records(broker, topic, partition, before, timeout)
        facts: dict[str, Any] = {"topic": topic, "partition": partition, "broker": broker, "before": before}
        if code == OFFSET_OUT_OF_RANGE:
            bounds = self.bounds(topic, partition, broker=broker)
            valid = {"valid_start": bounds.local_start, "valid_end": bounds.high_watermark}
            raise OffsetOutOfRange("DeleteRecords past the high watermark", **valid, **facts)
        try:
            check(code, **facts)
        except LeaderMoved as error:
            raise Fenced("this broker does not lead the partition: nothing was deleted", **facts) from error
        return low_watermark
