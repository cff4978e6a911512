"""One Spark session and one tiered cluster for the whole folder: a session takes 7 s to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.servers.kafka_source import kafka_source_jars_for_tests
from tests.spark.tiers import Record, Tiers
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.sessions import SHORT_RUN, local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    jars = ",".join(map(str, kafka_source_jars_for_tests()))
    config = {"spark.jars": jars} if jars else {}
    with local_session("tierstate-tests", 2, memory="512m", config=config, jvm=SHORT_RUN) as session:
        yield session


@pytest.fixture
def kafka_source(spark: SparkSession) -> None:
    """Skip a test that compares with Spark's Kafka source where it cannot be fetched."""
    if "spark-sql-kafka" not in spark.sparkContext.getConf().get("spark.jars", ""):
        pytest.skip("Spark's Kafka source is not on this machine, and cannot be fetched")


@pytest.fixture(scope="session")
def tiers(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    made = Tiers(kafka, tmp_path_factory.mktemp("store"), f"spark-tier-state-{os.getpid()}")
    yield made
    made.topic.close()


@dataclass(frozen=True)
class Orders:
    """A topic of two partitions, copied, its local tier trimmed in the middle, and its records before the trim."""

    name: str
    uncommitted: list[Record]
    committed: list[Record]
    trimmed: int

    def of(self, partition: int, start: int = 0, end: int = 2**62) -> list[Record]:
        return [record for record in self.uncommitted if record[3] == partition and start <= record[4] < end]


@pytest.fixture(scope="session")
def orders(tiers: Tiers) -> Orders:
    """Records with nulls, empty values, headers, times that go backwards, an aborted and a committed transaction."""
    name = tiers.create(f"spark-orders-{os.getpid()}", 2)
    for partition in (0, 1):
        tiers.produce(name, partition, [record(number) for number in range(400)])
        tiers.produce(name, partition, [record(number) for number in range(30)], transaction="abort")
        tiers.produce(name, partition, [record(number) for number in range(30)], transaction="commit")
        tiers.produce(name, partition, [record(number) for number in range(400, 500)])
    uncommitted, committed = tiers.consumed(name), tiers.consumed(name, "read_committed")
    for partition in (0, 1):
        segments = tiers.copy(name, partition)
        assert len(segments) >= 3
        assert segments[-1].offsets.end > 300
        tiers.trim(name, partition, 250)
    return Orders(name, uncommitted, committed, 250)


def record(number: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "key": None if number % 7 == 0 else f"key-{number}".encode(),
        "value": None if number % 11 == 0 else b"" if number % 13 == 0 else os.urandom(100) + b"%d" % number,
        "timestamp": 1_767_225_600_000 + number * 1000 - (5000 if number % 10 == 0 else 0),
    }
    if number % 5 == 0:
        made["headers"] = [("trace", b"%d" % number), ("trace", None), ("größe", b"")]
    return made


def rows_of(frame: DataFrame) -> list[Record]:
    """Return rows as the oracle consumer has them, by partition and offset."""
    records = []
    names = frame.columns
    for row in frame.collect():
        value = dict(zip(names, row, strict=True))
        headers = value.get("headers")
        records.append(
            (
                _bytes(value["key"]),
                _bytes(value["value"]),
                value["topic"],
                value["partition"],
                value["offset"],
                round(value["timestamp"].timestamp() * 1000),
                value["timestampType"],
                None if headers is None else [(each["key"], _bytes(each["value"])) for each in headers],
            )
        )
    return sorted(records, key=lambda record: record[3:5])


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
