"""``spark.read.format("tierstate")`` shows exactly the records that a plain consumer saw before the trim."""

from __future__ import annotations

import json
import os

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Orders, rows_of
from tests.spark.tiers import Record, Tiers

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KAFKA_SOURCE_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)
HEADERS = ",headers:array<struct<key:string,value:binary>>"


def load(spark: SparkSession, tiers: Tiers, **options: str) -> DataFrame:
    """Load the source without registering it: Spark finds it."""
    return spark.read.format("tierstate").options(**tiers.options(**options)).load()


def without_headers(records: list[Record]) -> list[Record]:
    return [(*record[:-1], None) for record in records]


def test_schema_and_records_are_those_of_the_kafka_source(spark: SparkSession, tiers: Tiers, orders: Orders) -> None:
    frame = load(spark, tiers, subscribe=orders.name, includeHeaders="true")
    assert frame.schema.simpleString() == KAFKA_SOURCE_SCHEMA + HEADERS + ">"
    assert all(field.nullable for field in frame.schema.fields)
    assert rows_of(frame) == orders.uncommitted


def test_aborted_transactions_are_hidden_on_request(spark: SparkSession, tiers: Tiers, orders: Orders) -> None:
    frame = load(spark, tiers, subscribe=orders.name, includeHeaders="true", kafka__isolation__level="read_committed")
    assert rows_of(frame) == orders.committed != orders.uncommitted


def test_chosen_columns_alone_are_decoded_in_the_order_asked_for(
    spark: SparkSession, tiers: Tiers, orders: Orders
) -> None:
    frame = load(spark, tiers, subscribe=orders.name, columns="value,partition,offset")
    assert frame.columns == ["value", "partition", "offset"]
    rows = sorted((row[1], row[2], None if row[0] is None else bytes(row[0])) for row in frame.collect())
    assert rows == [(record[3], record[4], record[1]) for record in orders.uncommitted]


def test_exactly_the_offsets_asked_for_from_both_tiers(spark: SparkSession, tiers: Tiers, orders: Orders) -> None:
    frame = load(
        spark,
        tiers,
        subscribe=orders.name,
        startingOffsets=json.dumps({orders.name: {"0": 101, "1": -2}}),
        endingOffsets=json.dumps({orders.name: {"0": 417, "1": 3}}),
    )
    assert rows_of(frame) == without_headers(orders.of(0, 101, 417) + orders.of(1, 0, 3))


def test_a_worker_lost_to_a_task_that_stopped_early_is_forked_with_the_reading_code(
    spark: SparkSession, tiers: Tiers, orders: Orders
) -> None:
    frame = load(spark, tiers, subscribe=orders.name)
    assert not frame.isEmpty()
    parents = spark.sparkContext.parallelize(range(2), 2).map(lambda _: open(f"/proc/{os.getppid()}/cmdline").read())
    assert all("tierstate.spark.daemon" in line for line in parents.collect())
    assert frame.count() == len(orders.uncommitted)


def test_a_topic_without_records_is_an_empty_frame(spark: SparkSession, tiers: Tiers) -> None:
    assert load(spark, tiers, subscribe=tiers.create(f"spark-empty-{os.getpid()}", 2)).collect() == []


def test_a_wrong_option_and_an_unknown_topic_are_named_to_the_user(spark: SparkSession, tiers: Tiers) -> None:
    with pytest.raises(PySparkException, match="InvalidRequest: option minPartitions"):
        load(spark, tiers, subscribe="x", minPartitions="none")
    with pytest.raises(PySparkException, match=r"UnknownTopic: .*topic=there-is-no-such-topic"):
        load(spark, tiers, subscribe="there-is-no-such-topic").collect()


def test_our_sentence_is_last_and_not_behind_how_the_code_came_to_it(spark: SparkSession, tiers: Tiers) -> None:
    with pytest.raises(PySparkException) as raised:
        load(spark, tiers, subscribe="there-is-no-such-topic").collect()
    message = str(raised.value)
    assert message.count("Traceback") == 1
    assert "planning.py" not in message, "the code between Spark and the sentence"
    last = message.partition("SQLSTATE")[0].strip().splitlines()[-1]
    assert last.startswith("tierstate.state.errors.UnknownTopic: ")
    assert "topic=there-is-no-such-topic" in last


def test_a_schema_of_some_columns_in_any_order_is_all_that_is_read(
    spark: SparkSession, tiers: Tiers, orders: Orders
) -> None:
    declared = spark.read.format("tierstate").schema("offset long, headers array<struct<key:string,value:binary>>")
    frame = declared.options(**tiers.options(subscribe=orders.name)).load()
    assert frame.columns == ["offset", "headers"]
    rows = [(row[0], row[1] and [(each["key"], each["value"]) for each in row[1]]) for row in frame.collect()]
    assert sorted(rows, key=lambda row: row[0]) == sorted(
        [(record[4], record[7]) for record in orders.uncommitted], key=lambda row: row[0]
    )


def test_a_schema_of_other_columns_is_refused_and_the_column_named(
    spark: SparkSession, tiers: Tiers, orders: Orders
) -> None:
    frame = spark.read.format("tierstate").schema("offset long, value string")
    with pytest.raises(PySparkException, match=r"this column has another type.* column=value type=binary got=string"):
        frame.options(**tiers.options(subscribe=orders.name)).load().collect()


def test_an_error_in_an_executor_arrives_with_its_facts(spark: SparkSession, tiers: Tiers) -> None:
    name = tiers.create(f"spark-broken-{os.getpid()}")
    tiers.produce(name, 0, [{"value": os.urandom(100)} for _ in range(300)])
    segment = tiers.copy(name, 0)[1]
    log = next(path for path in tiers.folder.rglob("*.log") if str(path).endswith(f"{segment.object_key}.log"))
    log.chmod(0o644)
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0x55
    log.write_bytes(damaged)
    with pytest.raises(PySparkException, match=r"CorruptData: .*file=\S*" + segment.segment_id):
        load(spark, tiers, subscribe=name).collect()
