"""``value.format=avro`` makes of a value what Spark's own `from_avro` makes of it."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.servers.schema_registry import registry
from tests.spark.avro_values import (
    DDL,
    IDS,
    INNER,
    KIND,
    ORDERS,
    SCHEMA,
    avro,
    column,
    corrupt,
    kind_of,
    record,
    written,
)


@pytest.fixture
def avro_spark(spark: SparkSession) -> SparkSession:
    if "spark-avro" not in spark.sparkContext.getConf().get("spark.jars", ""):
        pytest.skip("Spark's Avro functions need Maven Central, once")
    return spark


def as_json(spark: SparkSession, kind: StructType, rows: pa.Array) -> list[str]:
    """Return each row as JSON, written by Spark."""
    frame = spark.createDataFrame(pa.table({"v": rows}), schema=StructType([StructField("v", kind)]))
    return [text for (text,) in frame.select(F.to_json("v")).collect()]


def by_from_avro(spark: SparkSession, schema: str, values: list[bytes], **options: str) -> list[str]:
    """Return the output of `as_json` for Spark's own decoder."""
    frame = spark.createDataFrame([(value,) for value in values], "v binary")
    return [text for (text,) in frame.select(F.to_json(from_avro("v", schema, options))).collect()]


@pytest.mark.spark
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(orders=st.lists(ORDERS, min_size=30, max_size=60))
def test_a_value_is_what_from_avro_makes_of_it(avro_spark: SparkSession, orders: list[dict[str, Any]]) -> None:
    values, typed = [written(SCHEMA, order) for order in orders], avro(SCHEMA)
    table = pa.table({"v": pa.array(values, pa.binary()), "ours": column(typed, *values).column})
    kinds = StructType([StructField("v", BinaryType()), StructField("ours", kind_of(typed))])
    theirs = from_avro("v", SCHEMA, {"mode": "FAILFAST"})
    both = avro_spark.createDataFrame(table, schema=kinds).select("ours", theirs.alias("theirs"))
    assert both.schema["theirs"].dataType.simpleString() == DDL
    # a map of Spark's has Java's order
    sides = [
        F.to_json(F.col(side).withField("others", F.array_sort(F.map_entries(f"{side}.others"))))
        for side in ("ours", "theirs")
    ]
    assert all(ours == theirs for ours, theirs in both.select(*sides).collect())


DAMAGED = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("tags", {"type": "array", "items": "Kind"}),
    ("cents", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("inner", ["null", INNER]),
)


@pytest.mark.spark
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_bytes_that_from_avro_refuses_are_corrupt(avro_spark: SparkSession, seed: int) -> None:
    chance, values = random.Random(seed), []
    for number in range(400):
        order = {"id": number, "name": [None, "é"][number % 2], "kind": "AB"[number % 2], "tags": ["B"] * (number % 3)}
        more = {"cents": Decimal("1.25"), "at": datetime(2026, 1, 1, tzinfo=UTC), "inner": [None, {"x": 1}][number % 2]}
        damaged = bytearray(written(DAMAGED, order | more))
        at = chance.randrange(len(damaged))
        damaged[at:] = bytes([chance.randrange(256)]) + damaged[at + 1 :] if number % 5 else b""
        values.append(bytes(damaged))
    refused, typed = 0, avro(DAMAGED)
    for value, theirs in zip(values, by_from_avro(avro_spark, DAMAGED, values, mode="PERMISSIVE"), strict=True):
        if theirs == "{}":  # a row of nulls: id is none in a record
            refused += 1
            assert corrupt(typed, value) == [0]
    assert refused > 80


PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "int", "default": 5}]}
PAIR["fields"] += [{"name": "y", "type": "int"}, {"name": "b", "type": "bytes", "default": "\u00ff"}]  # type: ignore[operator]


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("int", 7, {"type": "long"}),
        ("int", 7, {"type": "double"}),
        ("int", 7, {"type": ["null", "long"]}),
        (["null", "long"], 7, {"type": "long"}),
        (["null", "string"], "x", {"type": ["string", "null"]}),
        ("string", "é", {"type": "bytes"}),
        ("bytes", b"x", {"type": "string"}),
        (KIND, "B", {"type": KIND | {"symbols": ["B", "A"]}}),
        (KIND, "B", {"type": KIND | {"symbols": ["A"], "default": "A"}}),
        (["null", KIND], "B", {"type": ["null", KIND]}),
        (decimal(2), Decimal("1.25"), {"type": "bytes"}),
        ("int", 7, {"name": "added", "type": "bytes", "default": "\u00ff"}),
        ("int", 7, {"name": "added", "type": ["bytes", "null"], "default": "\u00ff"}),
        ("int", 7, {"name": "added", "type": {"type": "fixed", "name": "Two", "size": 2}, "default": "\u00ff\u0001"}),
        ("int", 7, {"name": "added", "type": decimal(2), "default": "}"}),
        ("int", 7, {"name": "added", "type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]}),
        ("int", 7, {"name": "added", "type": {"type": "map", "values": "bytes"}, "default": {"k": "\u00ff"}}),
        ("int", 7, {"name": "added", "type": PAIR, "default": {"y": 1}}),
        ("int", 7, {"type": ["string", "int"]}),
        ("int", 7, {"type": ["null", "double", "long", "string"]}),
        (["null", "int", "string"], "x", {"type": ["string", "null", "int"]}),
        (["int", {"type": "long", "logicalType": "timestamp-millis"}], 1 << 40, {"type": ["int", "long"]}),
        ([KIND, "null", PAIR], {"x": 1, "y": 2, "b": b"b"}, {"type": [KIND, "null", PAIR]}),
        ("int", 7, {"name": "added", "type": ["string", "int"], "default": "x"}),
        ("int", 7, {"name": "added", "type": ["null", PAIR], "default": None}),
    ],
)
def test_a_value_of_another_schema_is_what_from_avro_makes_of_it(
    avro_spark: SparkSession, old: Any, value: Any, new: dict[str, Any]
) -> None:
    writer, reader = record(("v", old)), json.dumps(json.loads(record()) | {"fields": [{"name": "v"} | new]})
    bare, id = written(writer, {"v": value}), next(IDS)
    with registry({id: (200, {"schema": writer})}) as server:
        typed = avro(reader, server.url)
        rows = column(typed, written(writer, {"v": value}, id)).column
    assert as_json(avro_spark, kind_of(typed), rows) == by_from_avro(
        avro_spark, writer, [bare], avroSchema=reader, mode="FAILFAST"
    )


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("long", 7, {"type": "long", "logicalType": "timestamp-millis"}),
        (decimal(2), Decimal("1.25"), decimal(3)),
    ],
)
def test_a_number_that_would_change_its_meaning_is_corrupt(old: Any, value: Any, new: dict[str, Any]) -> None:
    """`from_avro` reads 7 as a time, and 1.25 as 0.125."""
    writer, id = record(("v", old)), next(IDS)
    with registry({id: (200, {"schema": writer})}) as server:
        assert corrupt(avro(record(("v", new)), server.url), written(writer, {"v": value}, id)) == [0]
