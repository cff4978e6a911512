"""Kafka clients that read topics to their end, where each can begin, and what is known of each of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.proxy.other_clients import (
    by_c,
    by_flink,
    by_go,
    by_java,
    by_kcat,
    by_node,
    by_older_kafka_python,
    by_rskafka,
    by_spark,
)
from tests.proxy.python_clients import Rows, by_aiokafka, by_confluent, by_kafka_python
from tests.proxy.starts import EARLIEST, Read
from tests.servers.java_clients import kafka_console
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.artifacts import RELEASES, find_java, kafka_libs
from tierstate.state.routing import Isolation

PARTITIONS = 2
LEVELS = tuple(Isolation)
Reads = Callable[[str, Isolation, Sequence[Read]], list[Rows]]
Whole = Callable[[str, str, Isolation], Rows]


def by_librdkafka(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    """Read from the earliest offset by production code. The fourth field of a row is the type of its time."""
    rows: Rows = []
    for number in range(PARTITIONS):
        with closing(PlainConsumer({"bootstrap.servers": bootstrap}, isolation, SystemClock())) as consumer:
            start, end = consumer.bounds(topic, number)
            for batch in consumer.records(topic, number, start, end):
                rows += [(number, *each) for each in batch]
    return rows


def by_console(libs: Callable[[], Path], console: str, bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    shown = ("partition", "offset", "timestamp", "headers", "key")
    command = [find_java(), "-cp", f"{libs()}/*", console, "--bootstrap-server", bootstrap]
    command += ["--topic", topic, "--from-beginning", "--isolation-level", str(isolation)]
    command += ["--timeout-ms", "8000", *(word for each in shown for word in ("--property", f"print.{each}=true"))]
    done = subprocess.run(command, capture_output=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines, done.stderr.decode()[-2000:]
    return sorted((line,) for line in lines)


def from_earliest(client: Reads) -> Whole:
    """Return the client as a function that reads one topic from its earliest offset."""
    return lambda bootstrap, topic, isolation: client(bootstrap, isolation, [Read(topic, EARLIEST)])[0]


JARS: dict[str, Callable[[], Path]] = {
    "java": partial(kafka_libs, release=RELEASES[0]),
    "older java": partial(kafka_libs, release=RELEASES[-1]),
    "java 3.4.1": partial(kafka_console, "3.4.1"),
    "java 2.8.2": partial(kafka_console, "2.8.2"),
}
ANYWHERE: dict[str, Reads] = {
    "librdkafka": by_confluent,
    "kafka-python": by_kafka_python,
    **{name: partial(by_java, libs) for name, libs in JARS.items()},
    "franz-go": partial(by_go, "franz"),
    "sarama": partial(by_go, "sarama"),
    "kafka-go": partial(by_go, "segmentio"),
    "kafkajs": partial(by_node, "kafkajs"),
    "@platformatic/kafka": partial(by_node, "platformatic"),
    "rskafka": by_rskafka,
    "aiokafka": by_aiokafka,
    "kcat": by_kcat,
    "librdkafka in C": by_c,
    "older kafka-python": by_older_kafka_python,
    "spark's kafka source": by_spark,
    "flink's kafka source": by_flink,
}
"""The clients, which read topics from any start in `WAYS`."""
CONSOLES = {
    **dict.fromkeys(("java", "older java"), "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    **dict.fromkeys(("java 3.4.1", "java 2.8.2"), "kafka.tools.ConsoleConsumer"),
}
CLIENTS: dict[str, Whole] = {
    **{name: from_earliest(client) for name, client in ANYWHERE.items()},
    **{name: partial(by_console, JARS[name], console) for name, console in CONSOLES.items()},
    "librdkafka": by_librdkafka,
}
"""The same clients, from the earliest offset. Java's is the console consumer, which needs no compiler. It cannot begin
at a time, and begins at an offset of one partition only, so `ANYWHERE` has a program of Kafka's consumer instead."""
EARLIEST_WAY, BORDER, TIME, GROUP, NO_BROKERS = "earliest", "offset", "time", "group", "without brokers"
WAYS = {
    **dict.fromkeys(ANYWHERE, (EARLIEST_WAY, BORDER, TIME, GROUP, NO_BROKERS)),
    **dict.fromkeys(
        ("rskafka", "kcat", "spark's kafka source", "flink's kafka source"), (EARLIEST_WAY, BORDER, TIME, NO_BROKERS)
    ),
}
"""How each client can begin: at the earliest offset, at given offsets, at a time, where its group has committed. And
that it begins in all these ways at a proxy of the bucket alone.
rskafka and Spark have no groups. A kcat that ends after some records commits more than it wrote, also at a broker.
Flink's source joins no group: it commits at its checkpoints, and a job that ends does not wait for its last commit."""
ALIKE = tuple(name for name in CLIENTS if name != "librdkafka" and "java" not in name)
"""Clients of which the test gets every field, also from the earliest offset."""
SHOW_MARKERS = ("kafka-go", "older kafka-python")
"""Clients that return the markers of transactions as records."""
MARKERS = (bytes(4), bytes((0, 0, 0, 1)))
"""The keys of markers: version 0, of an aborted and of a committed transaction (KIP-98)."""
SHOW_ABORTED = ("kafka-go",)
"""Clients that accept read_committed, and return aborted records all the same."""
EMPTY_IS_NULL = ("kafka-go",)
"""Clients that return an empty key or value as null."""
IGNORE_APPEND_TIME = ("kafka-go", "@platformatic/kafka", "rskafka")
"""Clients that return the producer's time, also where the topic has the time of the append."""
UNCOMMITTED_ONLY = ("rskafka", "@platformatic/kafka", "older kafka-python")
"""Clients that are compared at read_uncommitted only. rskafka and kafka-python 2.0.2 have no isolation level.
@platformatic/kafka drops one aborted transaction of each producer in each answer, and returns the others."""
READS = {
    **dict.fromkeys(("kafka-python", "older kafka-python", "kafkajs", "@platformatic/kafka"), "of-python"),
    "rskafka": "of-rskafka",
}
"""The topics of clients that do not read every codec. rskafka fails at a null header and at a transaction's marker."""


def level_of(client: str) -> Isolation:
    return Isolation.READ_UNCOMMITTED if client in UNCOMMITTED_ONLY else Isolation.READ_COMMITTED


def without_markers(client: str, rows: Rows) -> Rows:
    return [row for row in rows if row[3] not in MARKERS] if client in SHOW_MARKERS else rows
