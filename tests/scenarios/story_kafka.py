"""Changes to a Kafka cluster in a story: topics, replicas, leaders, records and transactions.

Brokers are named by their place in the sandbox, 0 first; their node ids are one higher.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient

from tests.broker.leaders import topic_id_of
from tests.leader.real import eventually
from tierstate.sandbox.kafka import KafkaSandbox

PLAIN = ""
"""The transaction of a record that is in none."""
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
VALUE_BYTES = 60
HOUR_MS = 3_600_000


@dataclass
class Written:
    """A record that Kafka acknowledged; ``fate`` is that of its transaction."""

    value: bytes
    timestamp: int
    fate: list[str]


@dataclass
class StoryTopic:
    """``twin``: an untiered topic that gets the same records; ``written``: by partition and offset.

    ``next_ms`` is the time of the next record without a given time, beginning an hour ago. Times grow: an equal time
    makes no index entry, and only a full time index rolls a segment at the intended record.
    """

    name: str
    partitions: int
    twin: str | None = None
    count: int = 0
    written: dict[int, dict[int, Written]] = field(default_factory=dict)
    next_ms: int = field(default_factory=lambda: int(time.time() * 1000) - HOUR_MS)

    def truth(self, partition: int, first: int, end: int, committed: bool = True) -> dict[int, bytes]:
        """Return the records that a reader of ``[first, end)`` must see."""
        hidden = ABORTED if committed else None
        records = self.written.get(partition, {})
        return {at: each.value for at, each in sorted(records.items()) if first <= at < end and each.fate[0] != hidden}


class Writer:
    """A producer whose batches hold ``batch`` records each. With ``transaction``, it writes only in transactions."""

    def __init__(self, sandbox: KafkaSandbox, batch: int = 1, transaction: str | None = None, **more: Any) -> None:
        config = {"bootstrap.servers": sandbox.bootstrap, "log_level": 0, "batch.num.messages": batch}
        # a batch is sent when it is full, or by `flush`: one that waits less is sent short by a machine that is busy
        config |= {"linger.ms": 0 if batch == 1 else 60_000, "enable.idempotence": True, "compression.type": "none"}
        if transaction is not None:
            config["transactional.id"] = transaction
        self._producer: Any = Producer(config | more)
        self._fate = [COMMITTED]
        self._transactional = transaction is not None
        if self._transactional:
            self._producer.init_transactions(60)

    def writes(self, topic: StoryTopic, records: int, *, partition: int = 0, at_ms: int | None = None) -> Writer:
        """Write records; they are acknowledged on return. ``at_ms``: the first one's time; each next is 1 ms later."""
        written_here, failed = topic.written.setdefault(partition, {}), list[Any]()

        def told(error: Any, message: Any, written: Written) -> None:
            if error is not None:
                failed.append(error)
            elif message.topic() == topic.name:
                written_here[message.offset()] = written

        for number in range(records):
            at = topic.next_ms if at_ms is None else at_ms + number
            topic.next_ms += at_ms is None
            topic.count += 1
            written = Written(b"%0*d" % (VALUE_BYTES, topic.count), at, self._fate)
            hear = functools.partial(told, written=written)
            for name in filter(None, (topic.name, topic.twin)):
                self._producer.produce(name, written.value, partition=partition, timestamp=at, on_delivery=hear)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0, "the records did not arrive"
        assert not failed, failed
        return self

    def begins(self) -> Writer:
        self._fate = [OPEN]
        self._producer.begin_transaction()
        return self

    def commits(self) -> None:
        self._producer.commit_transaction(60)
        self._fate[0] = COMMITTED

    def aborts(self) -> None:
        self._producer.abort_transaction(60)
        self._fate[0] = ABORTED

    def was_fenced(self) -> None:
        """Require that Kafka aborted its open transaction, so that a commit is refused."""
        with pytest.raises(KafkaException):
            self._producer.commit_transaction(30)
        self._fate[0] = ABORTED


class ClusterAdmin:
    """An operator's actions with Kafka's own tools."""

    def __init__(self, sandbox: KafkaSandbox) -> None:
        self._sandbox = sandbox
        self._kafka = {"bootstrap.servers": sandbox.bootstrap}
        self._client: Any = AdminClient({**self._kafka, "log_level": 0})

    def create(self, topic: str, partitions: int, brokers: Sequence[int], **config: str) -> None:
        """Create a topic; ``brokers`` hold the replicas of every partition, the preferred leader first."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        placed = [[each + 1 for each in brokers]] * partitions
        new = NewTopic(topic, partitions, replica_assignment=placed, config=settings)
        self._client.create_topics([new], operation_timeout=30)[topic].result(30)

    def alter(self, topic: str, **config: str) -> None:
        """Change settings, and wait until the broker answers them."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._client.incremental_alter_configs([resource])[resource].result(30)
        place = ConfigResource(ResourceType.TOPIC, topic)

        def known() -> bool:
            settings = self._client.describe_configs([place])[place].result(30)
            return all(settings[each.name].value == each.value for each in entries)

        eventually(known)

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic])[topic].result(30)

    def topic_id(self, topic: str) -> str:
        return topic_id_of(self._kafka, topic)

    def exists(self, topic: str) -> bool:
        return topic in self._client.list_topics(timeout=60).topics

    def expand(self, topic: str, partitions: int) -> None:
        self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition, before)
        self._client.delete_records([place])[place].result(30)

    def reassign(self, topic: str, partition: int, brokers: Sequence[int]) -> None:
        """Move the replicas, and wait until every replica is in place and in sync."""
        place = Place(topic, partition)
        with _kafka_python(self._sandbox) as admin:
            errors = admin.alter_partition_reassignments({place: [each + 1 for each in brokers]})
            assert errors[place] is None, errors
            eventually(lambda: not admin.list_partition_reassignments([place]), 60)
        eventually(lambda: self.in_sync(topic, partition) == {*brokers}, 60)

    def elect_preferred(self, topic: str, partition: int) -> int | None:
        """Elect the preferred leader; return the leader afterwards."""
        with _kafka_python(self._sandbox) as admin:
            admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)
        return self.leader(topic, partition)

    def leads(self, topic: str, partition: int, broker: int) -> None:
        """Wait until the preferred replica leads and is this one."""
        eventually(lambda: self.elect_preferred(topic, partition) == broker)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader; None during an election, and for a partition that does not exist yet."""
        metadata = self._client.list_topics(topic, timeout=60).topics[topic].partitions.get(partition)
        return metadata.leader - 1 if metadata is not None and metadata.leader > 0 else None

    def in_sync(self, topic: str, partition: int) -> set[int]:
        return {
            each - 1 for each in self._client.list_topics(topic, timeout=60).topics[topic].partitions[partition].isrs
        }

    def replicas(self, topic: str, partition: int) -> list[int]:
        return [
            each - 1
            for each in self._client.list_topics(topic, timeout=60).topics[topic].partitions[partition].replicas
        ]

    def move_folder(self, broker: int, topic: str, partition: int, folder: str) -> None:
        """Move a replica to another log dir of its broker; ends when asked for, not when done."""
        with _kafka_python(self._sandbox) as admin:
            admin.alter_replica_log_dirs({(topic, partition, broker + 1): folder})


class _kafka_python:
    """The admin client of kafka-python, which has the requests that librdkafka's lacks."""

    def __init__(self, sandbox: KafkaSandbox) -> None:
        self._client = KafkaAdminClient(bootstrap_servers=sandbox.bootstrap.split(","))

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
