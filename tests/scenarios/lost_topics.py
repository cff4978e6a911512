"""Topics with everything that Kafka stores, copied to a bucket, whose cluster is then lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.scenarios.house import House, eventually
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.runtime.settings_load import settings_from
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import TopicIdPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 400
"""Records of each codec in each partition."""
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Key, value, milliseconds, headers."""


@dataclass
class Lost:
    """``ends``: the end of the copied records by topic and partition. ``rows``: committed records below it, read while
    the cluster was there. ``cluster_id``: its id."""

    house: House
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    rows: dict[tuple[str, int], list[tuple[int, Row]]] = field(default_factory=dict)

    @property
    def bucket(self) -> list[str]:
        return ["--store", self.house.store.as_uri(), "--source", "bucket"]

    def committed(self, topic: str, partition: int) -> list[Row]:
        return [row for _, row in self.rows[topic, partition]]


def produce_all_kinds(house: House, topic: str, partitions: int, times: int = 1) -> None:
    """Append records of every codec, keys and values that are null or empty, headers, and transactions of both ends.

    An aborted one and a committed one of another producer are in each other's midst.
    """
    config = {**house.kafka.client_config, "log_level": 0, "batch.size": 3_000, "linger.ms": 5}
    for number, codec in enumerate(CODECS * times):
        plain: Any = Producer({**config, "compression.type": codec, "enable.idempotence": True})
        for partition in range(partitions):
            for at in range(EACH):
                _produce(plain, topic, partition, number, at)
        assert plain.flush(60) == 0
        commits: Any = Producer({**config, "compression.type": codec, "transactional.id": f"{topic}-c{number}"})
        aborts: Any = Producer({**config, "compression.type": codec, "transactional.id": f"{topic}-a{number}"})
        for each in (commits, aborts):
            each.init_transactions(30)
            each.begin_transaction()
        for partition in range(partitions):
            for at in range(20):
                _produce(commits, topic, partition, number, 10_000 + at)
                _produce(aborts, topic, partition, number, 20_000 + at)
                if not at % 5:
                    commits.flush(30)
                    aborts.flush(30)
        commits.commit_transaction(30)
        aborts.abort_transaction(30)


def _produce(producer: Any, topic: str, partition: int, number: int, at: int) -> None:
    key = None if not at % 7 else b"" if not at % 11 else b"k%d" % (at % 5)
    value = None if not at % 13 else b"" if not at % 17 else b"%06d-%06d-" % (number, at) * (1 + at % 9)
    headers = [("at", b"%d" % at), ("null", None), ("at", b"")] if not at % 3 else None
    producer.produce(
        topic, value, key, partition=partition, headers=headers, timestamp=1_700_000_000_000 + 1000 * number + at
    )
    producer.poll(0)


def read_rows(
    client: dict[str, str], topic: str, partition: int, end: int, isolation: str = "read_uncommitted"
) -> Iterator[tuple[int, Row]]:
    """Yield offset and record of each record below ``end``, as Kafka's own client reads it."""
    consumer: Any = Consumer(
        {**client, "group.id": "rows", "enable.auto.commit": False, "isolation.level": isolation, "log_level": 0,
         "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the broker sends nothing"
            if message.error() or message.offset() >= end:
                return
            headers = tuple((name, value) for name, value in message.headers() or ())
            yield message.offset(), (message.key(), message.value(), message.timestamp()[1], headers)
    finally:
        consumer.close()


def copied_ends(house: House, topic: str, partitions: int) -> list[int]:
    """Return the ends of the remote records, as the bucket has them."""
    settings = settings_from({"store.url": house.store.as_uri(), "view.source": "bucket"})
    with BucketConnection(Connection(settings), tell=lambda age: None) as bucket:
        try:
            view, topic_id = bucket.view(), bucket.control.topic(topic).topic_id
        except InvalidRequest:
            return []  # nothing is archived yet
        owned = [view.partition(TopicIdPartition(topic_id, number)).coverage.owned for number in range(partitions)]
        return [each[-1].offsets.end + 1 if each else 0 for each in owned]


def remember(house: House, topics: dict[str, int]) -> Lost:
    """Return what is copied of these topics (by name: number of partitions), once all rolled segments are."""
    lost = Lost(house)
    for topic, partitions in topics.items():
        rolled = [int(house.logs(topic, number)[-1].stem) for number in range(partitions)]
        for number, end in enumerate(rolled):  # before the agent trims
            lost.ends[topic, number] = end
            lost.rows[topic, number] = list(read_rows(house.kafka.client_config, topic, number, end, "read_committed"))
    with house.agent():
        for topic, partitions in topics.items():
            rolled = [lost.ends[topic, number] for number in range(partitions)]
            eventually(lambda: copied_ends(house, topic, partitions) == rolled)  # noqa: B023 - called at once
    return lost
