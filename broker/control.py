"""The protocol through which agents and commands use a cluster: leadership, bounds, truncation, groups.

Two implementations pass one contract suite (`tests/broker/test_broker_control.py`): the one for Kafka in this file, and
the in-memory one in `tests/twins/memory_broker.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka.admin import AdminClient

from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, TierstateError
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset
from ..state.retention import TopicConfig
from ..state.routing import LocalBounds
from .answers import Address, Place, RawMetadata
from .bounds import bounds_of_leader, read_bounds, read_bounds_of
from .existence import may_describe, topic_exists
from .groups import TopicGroups, read_groups
from .leadership import Leadership
from .live_client import LiveClient
from .local_reads import TIMEOUT_S
from .raw import RawClient
from .topics import TopicDescription, describe_topic, describe_topics, read_config, read_configs
from .transactions import OpenTransaction, read_open_transactions
from .truncation import LONGEST_SECONDS, delete_records_on


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
        ...

    def topic(self, name: str) -> TopicDescription:
        """Return the description of a topic. Raises UnknownTopic."""
        ...

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        """Return whether ``broker`` knows a topic of this id. See `existence.topic_exists`."""
        ...


class BrokerControl(TopicDirectory, Protocol):
    """Thread-safe; blocking, with a deadline. All methods also raise BrokerUnavailable, TimedOut, AccessDenied."""

    def config(self, topic: str) -> TopicConfig:
        """Return the effective settings of a topic. Raises UnknownTopic."""
        ...

    def bounds(
        self, topic: str, partition: int, *, broker: BrokerId | None = None, epoch: LeaderEpoch | None = None
    ) -> LocalBounds:
        """Return the log's bounds on ``broker``; None: on the leader.

        Raises Fenced if a newer epoch than ``epoch`` exists, LeaderMoved (a BrokerUnavailable) if ``broker`` does not
        lead or does not know ``epoch`` yet, and UnknownTopic.
        """
        ...

    def configs(self, topics: Collection[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        """Return the settings, or the error of `config`, for each topic, by few requests to ``broker``."""
        ...

    def bounds_of(self, places: Collection[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        """Return the bounds, or the error of `bounds`, for each partition, by few requests to ``broker``."""
        ...

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        """Return the open transactions of a partition: see `transactions.read_open_transactions`."""
        ...

    def may_describe(self, topics: Sequence[str], *, broker: BrokerId) -> bool:
        """Return whether ``broker`` allows to DESCRIBE these and all other topics. See `existence.may_describe`."""
        ...

    def groups(self, topic: str) -> TopicGroups:
        """Return the groups' positions on a topic, and why others are unknown (`TopicGroups.why_incomplete`)."""
        ...

    def groups_of(self, topics: Collection[str]) -> dict[str, TopicGroups]:
        """Return the result of `groups` for each topic, by listing the groups only once."""
        ...

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
    ) -> Offset:
        """Delete records on one broker: see `truncation.delete_records_on`."""
        ...

    def close(self) -> None: ...


class KafkaControl:
    """The `BrokerControl` of a real cluster."""

    def __init__(self, raw: RawClient, admin: LiveClient, leadership: Leadership) -> None:
        self._raw = raw
        self._admin: LiveClient | None = admin
        self._leadership = leadership
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
        return bounds_of_leader(self._raw, self._leadership, topic, partition, epoch, timeout_s=TIMEOUT_S)

    def configs(self, topics: Collection[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        return read_configs(self._raw, broker, topics)

    def bounds_of(self, places: Collection[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        return read_bounds_of(self._raw, broker, dict.fromkeys(places))

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        return read_open_transactions(self._raw, broker, topic, partition)

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        return topic_exists(self._raw, broker, topic_id)

    def may_describe(self, topics: Sequence[str], *, broker: BrokerId) -> bool:
        return may_describe(self._raw, broker, topics)

    def groups(self, topic: str) -> TopicGroups:
        return self.groups_of([topic])[topic]

    def groups_of(self, topics: Collection[str]) -> dict[str, TopicGroups]:
        return read_groups(self._raw, topics)

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = LONGEST_SECONDS
    ) -> Offset:
        return delete_records_on(self._raw, broker, topic, partition, before, timeout)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            raise BrokerUnavailable("the connection is closed")
        admin: AdminClient = self._admin.now()
        return admin

    def close(self) -> None:
        """Release librdkafka's client, which closes with the last reference to it. Otherwise a caller that keeps a
        reader (a prompt keeps a traceback after Ctrl-C) would keep its threads, pipes and sockets. `raw` stays open.
        """
        self._admin = None
