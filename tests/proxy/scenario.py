"""Topics for all clients: one has every codec, aborts, headers and nulls, and one has records of 6 MB."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from confluent_kafka import Producer

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.clients import EMPTY_IS_NULL, LEVELS, PARTITIONS, READS, SHOW_ABORTED, by_librdkafka
from tests.proxy.python_clients import Rows
from tierstate.state.routing import Isolation

FIRST_MS = 1_767_225_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OF_PYTHON = CODECS[:2]
"""The codecs that kafka-python and Node's clients read without more libraries."""
LARGE = "large"
LARGE_BYTES = 6_000_000
ONE_SEGMENT = {"segment.ms": str(10**15)}
SMALL_SEGMENTS = {**ONE_SEGMENT, "internal.segment.bytes": "60000"}
LARGE_SEGMENTS = {
    **ONE_SEGMENT,
    "internal.segment.bytes": str(8 << 20),
    "max.message.bytes": str(7 << 20),
    "message.timestamp.type": "LogAppendTime",
}


@dataclass
class Scenario:
    """``topics`` are topics of the cluster by their short names; ``fill_topics`` creates them."""

    cluster: TieredCluster
    topics: dict[str, str] = field(default_factory=dict)
    truths: dict[tuple[str, Isolation], Rows] = field(default_factory=dict)
    """The rows of librdkafka by topic, without the type of the time."""
    late_times: dict[str, range] = field(default_factory=dict)
    """Times (ms) by topic: `fill` returns them."""

    def fill_topics(self, names: Iterable[str]) -> None:
        """Create and fill topics, and read them at the broker with librdkafka."""
        for name in names:
            settings = LARGE_SEGMENTS if name == LARGE else SMALL_SEGMENTS
            self.topics[name] = topic = self.cluster.topic(name, 0, PARTITIONS, **settings)
            if name == LARGE:
                fill_with_large_records(self.cluster, topic)
            else:
                codecs = OF_PYTHON if name == "of-python" else CODECS
                self.late_times[topic] = fill(self.cluster, topic, codecs, plain=name == "of-rskafka")
        for topic, level in product(self.topics.values(), LEVELS):
            rows = by_librdkafka(self.cluster.kafka.bootstrap, topic, level)
            self.truths[topic, level] = [(*row[:3], *row[4:]) for row in rows]

    def read_by(self, client: str) -> str:
        """Return the topic with every kind of record that this client reads."""
        return self.topics[READS.get(client, "orders")]

    def truth(self, client: str, level: Isolation, topic: str | None = None) -> Rows:
        """Return what this client should return, without markers. ``topic``: None means the topic of `read_by`."""
        topic = topic or self.read_by(client)
        rows = self.truths[topic, Isolation.READ_UNCOMMITTED if client in SHOW_ABORTED else level]
        if client in EMPTY_IS_NULL:
            rows = [(*row[:3], row[3] or None, row[4] or None, *row[5:]) for row in rows]
        return rows


def fill(cluster: TieredCluster, topic: str, codecs: Sequence[str] = CODECS, *, plain: bool = False) -> range:
    """Fill the topic: every codec, nulls, headers, one-record batches, a large one, and interleaved transactions.

    ``plain``: without transactions and without a null header. Return times (ms) after those of all markers, which have
    the coordinator's time. At some of these times, the first record is in the middle of the log.
    """
    common = {**cluster.kafka.client_config, "linger.ms": 0}
    producers = [Producer({**common, "compression.type": codec, "batch.num.messages": 9}) for codec in codecs]
    writers = [Producer({**common, "transactional.id": f"{topic}-{n}"}) for n in (1, 2) if not plain]
    for writer in writers:
        writer.init_transactions(30)
    number = 0

    def put(producer: Any, partition: int, first_ms: int = FIRST_MS, **what: Any) -> None:
        nonlocal number
        at = first_ms + number * 10 - (number % 7) * 300
        record = {"key": b"key-%d" % (number % 5), "value": b"value %d " % number * 9, **what}
        producer.produce(topic, partition=partition, timestamp=at, **record)
        number += 1

    for turn in range(24):
        for writer in writers:
            writer.begin_transaction()
        for partition in range(PARTITIONS):
            for at, producer in enumerate(producers):
                put(producer, partition, key=None)
                put(producer, partition, value=None)
                put(producer, partition, headers=[("empty", b"" if plain else None), ("h", b"%d" % turn)])
                put(producer, partition, value=b"")
                if at == turn % len(producers):
                    producer.flush(30)  # a batch of few records
                    put(producer, partition)
            for writer in writers:
                put(writer, partition)
                writer.flush(30)
        for producer in producers:
            producer.flush(30)
        for at, writer in enumerate(writers):
            if (turn + at) % 3 == 0:
                writer.abort_transaction(30)
            else:
                writer.commit_transaction(30)
    later_ms = int(time.time() * 1000)
    for partition in range(PARTITIONS):
        large = Producer({**common, "batch.size": 50_000, "batch.num.messages": 10_000, "linger.ms": 2_000})
        for _ in range(12):  # each as large as a segment may be
            for _ in range(45):
                put(large, partition, later_ms, value=number.to_bytes(4) * 250)
            assert large.flush(30) == 0
        for _ in range(40):
            put(producers[0], partition)
            producers[0].flush(30)
    return range(later_ms, later_ms + number * 10, 500)


def fill_with_large_records(cluster: TieredCluster, topic: str) -> None:
    """Fill each partition with two segments, which both have a record of 6 MB among small ones."""
    common = {**cluster.kafka.client_config, "linger.ms": 20, "message.max.bytes": 7 << 20}
    for partition in range(PARTITIONS):
        producers = [Producer({**common, "compression.type": codec}) for codec in OF_PYTHON]
        for number in range(8):
            producer = producers[(partition + number // 4) % len(producers)]
            value = random.Random(number).randbytes(LARGE_BYTES if number % 4 == 2 else 200)
            for copy in range(1 if len(value) == LARGE_BYTES else 10):
                producer.produce(topic, value, b"%d" % copy, partition, timestamp=FIRST_MS, headers=[("h", b"x")])
            assert producer.flush(60) == 0
