"""``value.format`` in whole queries: the struct with the other columns, from both tiers, in batch and stream."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.docs.blocks import executed
from tests.docs.page_shell import replaced
from tests.spark.streams import ends
from tests.spark.tiers import Tiers
from tierstate.spark.options import parse_options
from tierstate.state.errors import InvalidRequest

DDL = "id bigint, name string, at timestamp, nested struct<a:int>"
JSON = {"value.format": "json", "value.schema": DDL}
ODD = {None: 7, b"": 11, b"{": 13, b'{"id":"x","name":1.50}': 17, b"\xff": 19, b'{"id":1}{"id":2}': 23}
"""Values, and of how many records one has each."""
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "tierstate.store": "file:///nowhere", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"value.format": "xml"}, r"option value\.format is .*got='xml'"),
        ({"value.format": "json"}, r"option value\.format=json needs value\.schema"),
        ({"value.schema": DDL}, r"option value\.schema needs value\.format"),
        (JSON | {"value.schema": "id uuid"}, r"option value\.schema: no type .*type=uuid"),
    ],
)
def test_options_that_do_not_go_together_are_refused_and_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_options(GIVEN | options)


@pytest.fixture(scope="module")
def events(tiers: Tiers) -> str:
    """A topic of two partitions, copied, and trimmed in the middle; values of every sort."""
    name = tiers.create(f"typed-{os.getpid()}", 2)
    for partition in (0, 1):
        tiers.produce(name, partition, [_event(number) for number in range(700)])
        assert tiers.copy(name, partition)
        tiers.trim(name, partition, 300)
    return name


def _event(number: int) -> dict[str, Any]:
    event = {"id": number, "name": f"n{number}", "at": "2026-01-01T00:00:00Z", "nested": {"a": number % 7}}
    value = next((value for value, each in ODD.items() if number % each == 0), json.dumps(event).encode())
    return {"key": b"%d" % number, "value": value, "headers": [("trace", b"1")], "timestamp": 1_767_225_600_000}


def _typed(spark: SparkSession, tiers: Tiers, name: str, **more: str) -> DataFrame:
    return spark.read.format("tierstate").options(**tiers.options(subscribe=name), **JSON, **more).load()


def _by_from_json(frame: DataFrame) -> DataFrame:
    theirs = F.from_json(F.col("value").cast("string"), DDL, {"timeZone": "UTC"})
    return frame.withColumn("value", theirs)


def _rows(frame: DataFrame) -> list[Any]:
    return frame.orderBy("partition", "offset").collect()


@pytest.mark.spark
@pytest.mark.kafka
def test_a_typed_value_stands_where_the_bytes_stood_and_is_what_from_json_makes_of_them(
    spark: SparkSession, tiers: Tiers, events: str
) -> None:
    plain = spark.read.format("tierstate").options(**tiers.options(subscribe=events), includeHeaders="true").load()
    typed = _typed(spark, tiers, events, includeHeaders="true")
    whole = typed.where("_corrupt IS NULL").drop("_corrupt")
    assert whole.schema == _by_from_json(plain).schema
    rows = _rows(whole)
    assert 900 < len(rows) < 1400
    same = plain.join(whole.select("partition", "offset"), ["partition", "offset"], "semi")
    assert rows == _rows(_by_from_json(same).select(whole.columns))
    assert rows[1]["value"]["name"] == "n1"


@pytest.mark.spark
@pytest.mark.kafka
def test_the_bytes_of_a_value_that_does_not_parse_are_kept_and_its_neighbours_are_read(
    spark: SparkSession, tiers: Tiers, events: str
) -> None:
    """`_corrupt` has the type and the content of an export's."""
    plain = spark.read.format("tierstate").options(**tiers.options(subscribe=events)).load()
    raw = {(row["partition"], row["offset"]): row["value"] for row in _rows(plain)}
    corrupt = _rows(_typed(spark, tiers, events).where("_corrupt IS NOT NULL"))
    assert {bytes(row["_corrupt"]["value"]) for row in corrupt} == set(ODD) - {None}
    for row in corrupt:
        assert (row["value"], row["_corrupt"]["key"]) == (None, None)
        assert row["_corrupt"]["value"] == raw[row["partition"], row["offset"]]


@pytest.mark.spark
@pytest.mark.kafka
def test_columns_and_a_declared_schema_choose_as_ever_and_may_leave_the_value_out(
    spark: SparkSession, tiers: Tiers, events: str
) -> None:
    whole = [(row["value"], row["offset"]) for row in _rows(_typed(spark, tiers, events))]
    chosen = _typed(spark, tiers, events, columns="value,partition,offset")
    assert chosen.columns == ["value", "partition", "offset"]
    assert [(row["value"], row["offset"]) for row in _rows(chosen)] == whole
    assert _typed(spark, tiers, events, columns="value").columns == ["value"]
    assert _typed(spark, tiers, events, columns="value").where("value.id = 2").count() == 2
    assert _typed(spark, tiers, events, columns="offset").count() == 1400
    options = tiers.options(subscribe=events) | JSON
    declared = spark.read.format("tierstate").schema(f"offset long, value struct<{DDL.replace(' ', ':', 1)}>")
    assert declared.options(**options).load().where("value.id = 2").count() == 2
    with pytest.raises(PySparkException, match=r"this column has another type.* column=value"):
        spark.read.format("tierstate").schema("value binary").options(**options).load().collect()


@pytest.mark.spark
@pytest.mark.kafka
def test_a_stream_has_the_typed_values_of_a_batch(
    spark: SparkSession, tiers: Tiers, events: str, tmp_path: Path
) -> None:
    options = tiers.options(subscribe=events, startingOffsets="earliest", maxOffsetsPerTrigger="500") | JSON
    frame = spark.readStream.format("tierstate").options(**options).load()
    rows: list[Any] = []

    def keep(batch: DataFrame, number: int) -> None:
        rows.extend(batch.collect())

    ends(frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)))
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == _rows(_typed(spark, tiers, events))


@pytest.mark.spark
@pytest.mark.kafka
def test_the_example_of_the_page_is_what_from_json_comes_to(spark: SparkSession, tiers: Tiers) -> None:
    name = tiers.create(f"typed-page-{os.getpid()}")
    orders = [{"id": number, "item": f"item-{number % 3}", "price": number / 4, "tags": []} for number in range(50)]
    tiers.produce(name, 0, [{"value": json.dumps(order).encode()} for order in orders])
    block, corrupt = executed("docs/spark.md", __file__)
    names: dict[str, Any] = {"spark": spark}
    exec(replaced(block.code, tiers.page_texts(name)), names)
    assert eval(corrupt.code.strip(), names).collect() == []
    totals = {row[0]: float(row[1]) for row in names["by_item"].collect()}
    assert totals == {f"item-{item}": sum(number / 4 for number in range(item, 50, 3)) for item in range(3)}
