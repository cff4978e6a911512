"""Kafka clients that read a topic from its beginning to its end, and what is known of each of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as Place

from tests.proxy.other_clients import (
    by_aiokafka,
    by_flink,
    by_go,
    by_kcat,
    by_node,
    by_older_kafka_python,
    by_rskafka,
    by_spark,
)
from tests.servers.java_clients import kafka_console
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.artifacts import RELEASES, kafka_libs
from tierstate.sandbox.java import find_java
from tierstate.state.routing import Isolation

PARTITIONS = 2
LEVELS = tuple(Isolation)
Rows = list[tuple[Any, ...]]
Reads = Callable[[str, str, Isolation], Rows]


def by_librdkafka(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    rows: Rows = []
    for number in range(PARTITIONS):
        with closing(PlainConsumer({"bootstrap.servers": bootstrap}, isolation, SystemClock())) as consumer:
            start, end = consumer.bounds(topic, number)
            for batch in consumer.records(topic, number, start, end):
                rows += [(number, *each) for each in batch]
    return rows


def by_kafka_python(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    rows: Rows = []
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=str(isolation), auto_offset_reset="none", enable_auto_commit=False
    )
    with closing(consumer):
        for number in range(PARTITIONS):
            place = Place(topic, number)
            consumer.assign([place])
            consumer.seek(place, consumer.beginning_offsets([place])[place])
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                for each in consumer.poll(1_000).get(place, []):
                    rows.append((number, each.offset, each.timestamp, each.key, each.value, tuple(each.headers)))
    return rows


def java(libs: Callable[[], Path], console: str = "org.apache.kafka.tools.consumer.ConsoleConsumer") -> Reads:
    def read(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
        shown = ("partition", "offset", "timestamp", "headers", "key")
        command = [find_java(), "-cp", f"{libs()}/*", console, "--bootstrap-server", bootstrap]
        command += ["--topic", topic, "--from-beginning", "--isolation-level", str(isolation)]
        command += ["--timeout-ms", "8000", *(word for each in shown for word in ("--property", f"print.{each}=true"))]
        done = subprocess.run(command, capture_output=True, timeout=120)
        lines = [line for line in done.stdout.splitlines() if line]
        assert lines, done.stderr.decode()[-2000:]
        return sorted((line,) for line in lines)

    return read


CLIENTS: dict[str, Reads] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "java": java(partial(kafka_libs, release=RELEASES[0])),
    "older java": java(partial(kafka_libs, release=RELEASES[-1])),
    "java 3.4.1": java(partial(kafka_console, "3.4.1"), "kafka.tools.ConsoleConsumer"),
    "java 2.8.2": java(partial(kafka_console, "2.8.2"), "kafka.tools.ConsoleConsumer"),
    "franz-go": partial(by_go, "franz"),
    "sarama": partial(by_go, "sarama"),
    "kafka-go": partial(by_go, "segmentio"),
    "kafkajs": partial(by_node, "kafkajs"),
    "@platformatic/kafka": partial(by_node, "platformatic"),
    "rskafka": by_rskafka,
    "aiokafka": by_aiokafka,
    "kcat": by_kcat,
    "older kafka-python": by_older_kafka_python,
    "spark's kafka source": by_spark,
    "flink's kafka source": by_flink,
}
ALIKE = tuple(name for name in CLIENTS if name != "librdkafka" and "java" not in name)
"""Clients of which the test gets every field."""
SHOW_MARKERS = ("kafka-go", "older kafka-python")
"""Clients that return the markers of transactions as records."""
MARKERS = (bytes(4), bytes((0, 0, 0, 1)))
"""The keys of markers: version 0, of an aborted and of a committed transaction (KIP-98)."""
SHOW_ABORTED = ("kafka-go",)
"""Clients that accept read_committed, and return aborted records all the same."""
EMPTY_IS_NULL = ("kafka-go",)
"""Clients that return an empty key or value as null."""
UNCOMMITTED_ONLY = ("rskafka", "@platformatic/kafka", "older kafka-python")
"""Clients that are compared at read_uncommitted only. rskafka and kafka-python 2.0.2 have no isolation level.
@platformatic/kafka drops one aborted transaction of each producer in each answer, and returns the others."""
READS = {
    **dict.fromkeys(("kafka-python", "older kafka-python", "kafkajs", "@platformatic/kafka"), "of-python"),
    "rskafka": "of-rskafka",
}
"""The topics of clients that do not read every codec. rskafka fails at a null header and at a transaction's marker."""
