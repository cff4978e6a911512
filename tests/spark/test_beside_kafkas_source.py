"""Options of Spark's Kafka source do here what they do there: each query runs with both sources."""

from __future__ import annotations

import json
import os

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import record
from tests.spark.tiers import Tiers

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("kafka_source")]
SOURCES = ("kafka", "tierstate")


def load(spark: SparkSession, tiers: Tiers, source: str, **options: str) -> DataFrame:
    return spark.read.format(source).options(**tiers.options(**options)).load()


def test_a_query_has_as_many_tasks_as_with_kafkas_source(spark: SparkSession, tiers: Tiers) -> None:
    name = tiers.create(f"spark-tasks-{os.getpid()}", 5)
    for partition in range(5):
        tiers.produce(name, partition, [record(number) for number in range(300)])
        tiers.copy(name, partition)
    uneven = json.dumps({name: {"0": 0, "1": 290, "2": 290, "3": 299, "4": 298}})
    for options in (
        {},
        *({"minPartitions": str(count)} for count in (1, 6, 10, 11)),
        *({"minPartitions": str(count), "startingOffsets": uneven} for count in (3, 5, 8)),
    ):
        tasks = [load(spark, tiers, source, subscribe=name, **options).rdd.getNumPartitions() for source in SOURCES]
        assert tasks[0] == tasks[1], options


def test_a_start_above_the_end_is_refused_by_both(spark: SparkSession, tiers: Tiers) -> None:
    name = tiers.create(f"spark-start-above-end-{os.getpid()}")
    tiers.produce(name, 0, [record(number) for number in range(30)])
    at = record(7)["timestamp"]
    for ending in ({"endingOffsets": json.dumps({name: {"0": 8}})}, {"endingTimestamp": str(at)}):
        options = ending | {"startingOffsets": json.dumps({name: {"0": 20}})}
        for source in SOURCES:
            message = r"start offset 20 is greater than the .*end offset [78]"
            with pytest.raises((PySparkException, Py4JJavaError), match=message):
                load(spark, tiers, source, subscribe=name, **options).count()


def test_times_find_markers_too_where_kafkas_lookup_is_chosen(spark: SparkSession, tiers: Tiers) -> None:
    """The records have times of January 2026, and the marker behind the first 40 has the time of its commit."""
    name = tiers.create(f"spark-markers-{os.getpid()}")
    tiers.produce(name, 0, [record(number) for number in range(40)], transaction="commit")
    tiers.produce(name, 0, [record(number) for number in range(300)])
    later = str(record(1000)["timestamp"])

    def counts(**options: str) -> tuple[int, int]:
        """Return the number of records after that time, and before it."""
        latest = {"startingOffsetsByTimestampStrategy": "latest"}
        after = load(spark, tiers, subscribe=name, startingTimestamp=later, **latest, **options)
        return after.count(), load(spark, tiers, subscribe=name, endingTimestamp=later, **options).count()

    assert counts(source="kafka") == counts(source="tierstate", timestampLookup="kafka") == (300, 40)
    assert counts(source="tierstate") == (0, 340)
    assert tiers.copy(name, 0)
    tiers.trim(name, 0, 100)
    assert counts(source="tierstate", timestampLookup="kafka") == (300, 40), "the marker is in the remote tier alone"
