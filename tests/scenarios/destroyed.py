"""Applications on a cluster that is destroyed while they write and read, and what they must have after its restore."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tests.scenarios.house import House
from tests.scenarios.lost_topics import CODECS, Row, read_rows
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.runtime.settings_load import settings_from
from tierstate.state.errors import InvalidRequest
from tierstate.state.offsets import Extent

ACK_S = 30
PAUSE_S = 0.5
EACH = 6
"""Records of each producer in each partition, a round."""
QUIET: dict[str, Any] = {"log_level": 0, "message.timeout.ms": ACK_S * 1000, "linger.ms": 5}


def number_of(row: Row) -> int:
    """Return the number of a record, which its first header has: the value may be null."""
    return int(row[3][0][1] or b"")


@dataclass
class Writers:
    """Producers of every codec, and two with transactions in each other's midst, of which one aborts.

    ``acknowledged``: the committed records, by topic, partition and offset, of which the application knows that they
    are in the log. ``aborted``: numbers of records that no consumer may see.
    """

    client: Mapping[str, str]
    topics: Mapping[str, int]
    numbers: Iterator[int]
    acknowledged: dict[tuple[str, int], dict[int, Row]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    in_the_middle: threading.Event = field(default_factory=threading.Event)
    """Set once a round has sent something that is not committed yet."""

    def __post_init__(self) -> None:
        config = {**self.client, **QUIET}
        self._plain: list[Any] = [
            Producer({**config, "compression.type": codec, "enable.idempotence": True}) for codec in CODECS
        ]
        self._commits, self._aborts = (Producer({**config, "transactional.id": name}) for name in ("pays", "fails"))
        for each in (self._commits, self._aborts):
            each.init_transactions(ACK_S)

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set, or the cluster is gone."""
        try:
            while not stop.is_set():
                self.round()
                time.sleep(PAUSE_S)
        except KafkaException:
            assert stop.is_set(), "a write failed before the cluster was destroyed"

    def round(self) -> None:
        committed: list[tuple[str, int, int, Row]] = []
        for each in (self._commits, self._aborts):
            each.begin_transaction()
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                for _ in range(EACH):
                    for producer in self._plain:
                        self._send(producer, topic, partition, self._keep)
                    self._send(self._commits, topic, partition, lambda *place: committed.append(place))
                    self.aborted.add(self._send(self._aborts, topic, partition, lambda *place: None))
        for each in (*self._plain, self._commits, self._aborts):
            each.flush(ACK_S)
            self.in_the_middle.set()
        self._aborts.abort_transaction(ACK_S)
        self._commits.commit_transaction(ACK_S)
        for place in committed:
            self._keep(*place)

    def destroyed(self) -> None:
        """Give up what is under way, as a process does that is killed."""
        for each in (*self._plain, self._commits, self._aborts):
            each.purge()

    def _keep(self, topic: str, partition: int, offset: int, row: Row) -> None:
        self.acknowledged.setdefault((topic, partition), {})[offset] = row

    def _send(self, producer: Any, topic: str, partition: int, acknowledge: Callable[..., None]) -> int:
        """Send a record; return its number."""
        number = next(self.numbers)
        key = None if not number % 7 else b"" if not number % 11 else b"k%d" % (number % 5)
        value = None if not number % 13 else b"%08d " % number * (1 + number % 9)
        headers: list[tuple[str, bytes | None]] = [("n", b"%d" % number), ("null", None), ("n", b"")][: 1 + number % 3]
        at = 1_700_000_000_000 + number

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                acknowledge(topic, partition, message.offset(), (key, value, at, tuple(headers)))

        producer.produce(topic, value, key, partition, timestamp=at, headers=headers, on_delivery=on_delivery)
        producer.poll(0)
        return number


@dataclass
class Group:
    """A consumer group that reads by itself, and commits behind what it has read. ``read``: the numbers of records."""

    name: str
    read: list[int] = field(default_factory=list)

    def goes_on(self, client: Mapping[str, str], topic: str, partitions: int, most: int | None = None) -> list[int]:
        """Read from the committed offsets on, commit, and return the records' numbers. ``most``: of each partition."""
        config: dict[str, Any] = {**client, "group.id": self.name, "isolation.level": "read_committed", "log_level": 0}
        config |= {"enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}
        numbers: list[int] = []
        with closing(Consumer(config)) as consumer:
            places = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], ACK_S)
            for place in places:
                place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                numbers += self._part(consumer, place, most)
        self.read += numbers
        return numbers

    def _part(self, consumer: Any, place: TopicPartition, most: int | None) -> list[int]:
        consumer.assign([place])
        numbers: list[int] = []
        end = place.offset
        while most is None or len(numbers) < most:
            message = consumer.poll(ACK_S)
            assert message is not None, "the broker sends nothing"
            if message.error():
                assert "EOF" in message.error().name(), message.error()
                break
            numbers.append(int(message.headers()[0][1]))
            end = message.offset() + 1
        if numbers:
            consumer.commit(offsets=[TopicPartition(place.topic, place.partition, end)], asynchronous=False)
        return numbers


def remote_ranges(house: House, topic: str) -> list[Extent]:
    """Return what the bucket alone has of each partition. Empty: it does not have the topic yet."""
    settings = settings_from({"store.url": house.store.as_uri(), "view.source": "bucket"})
    with BucketConnection(Connection(settings), tell=lambda age: None) as bucket:
        try:
            reader = bucket.reader(bucket.view())
            bounds = [reader.bounds(topic, number) for number in range(reader.topic(topic).partitions)]
        except InvalidRequest:
            return []
        return [Extent(each.start(topic, number), each.high_watermark) for number, each in enumerate(bounds)]


def numbers_in(client: Mapping[str, str], topic: str, partition: int, isolation: str = "read_uncommitted") -> list[int]:
    """Return the numbers of all records of a partition, in its order."""
    return [number_of(row) for _, row in read_rows(dict(client), topic, partition, 2**62, isolation)]
