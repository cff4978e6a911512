"""Spark and an Iceberg table, on a topic that Kafka tiered. Its brokers cannot read a remote record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kip405.kafkas_tiers import KafkasTiers, kafkas_tiers, plainly, transactions
from tierstate.spark.sessions import local_session
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
TOPIC = "orders"


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasTiers]:
    with kafkas_tiers(tmp_path_factory.mktemp("spark")) as made:
        made.use(prefix="ts/")
        made.topic(TOPIC)
        transactions(
            made.kafka, TOPIC, [("a", "begin"), ("a", "write"), ("b", "begin"), ("b", "write"), ("b", "commit")]
        )
        plainly(made.kafka, TOPIC, count=400)
        transactions(made.kafka, TOPIC, [("a", "begin"), ("a", "abort")])
        made.offloaded(TOPIC, segments=3)
        made.expected = {each: made.digests(TOPIC, each, "--via", "broker") for each in Isolation}
        shutil.rmtree(made.files)
        yield made


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("tierstate-kip405", 2, memory="512m") as session:
        yield session


def options(tiers: KafkasTiers, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": tiers.kafka.bootstrap,
        "subscribe": TOPIC,
        "tierstate.store": tiers.bucket.as_uri(),
        "tierstate.source": "kip405",
        "tierstate.kip405_prefixes": "ts/",
        **more,
    }


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_batch_query_reads_both_tiers(tiers: KafkasTiers, spark: SparkSession, isolation: Isolation) -> None:
    frame = spark.read.format("tierstate").options(**options(tiers, isolation=str(isolation))).load()
    assert frame.count() == tiers.expected[isolation][0][1]
    assert {row.partition for row in frame.select("partition").collect()} == {0}


def test_a_stream_reads_both_tiers_once(tiers: KafkasTiers, spark: SparkSession, tmp_path: Path) -> None:
    source = options(tiers, startingOffsets="earliest", isolation="read_committed")
    stream = spark.readStream.format("tierstate").options(**source).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    rows: list[Any] = spark.read.parquet(str(tmp_path / "rows")).select("offset").collect()
    offsets = sorted(row.offset for row in rows)
    assert len(offsets) == len(set(offsets)) == tiers.expected[Isolation.READ_COMMITTED][0][1]


def test_a_table_follows_the_topic_and_is_its_log(tiers: KafkasTiers, tmp_path: Path) -> None:
    folder = ("--set", f"table.folder={tmp_path}")
    tiers.run("table", "create", TOPIC, *folder)
    (followed,) = tiers.run("table", "follow", "--once", "--local", *folder)
    assert followed["rows"] == tiers.expected[Isolation.READ_COMMITTED][0][1]
    checked = tiers.run("table", "check", f"kafka.{TOPIC}", "--local", *folder)
    assert checked["findings"] == []
    assert sum(each["rows"] for each in checked["partitions"]) == followed["rows"]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_sparks_executors_read_the_records_that_kafka_served(tiers: KafkasTiers, isolation: Isolation) -> None:
    assert tiers.digests(TOPIC, isolation, "--via", "spark") == tiers.expected[isolation]
