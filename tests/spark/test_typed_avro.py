"""``value.format=avro``: `value` is the record that was written, also by another schema of a registry."""

from __future__ import annotations

import io
import json
import os
import random
import struct
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.docs.blocks import executed
from tests.docs.page_shell import replaced
from tests.servers.schema_registry import registry
from tests.spark.tiers import Tiers
from tierstate.spark.columns import VALUE, TypedValue, column_types, typed_value
from tierstate.state.errors import AccessDenied, InvalidRequest, Unavailable
from tierstate.values.open import open_reader
from tierstate.values.typed_column import TypedColumn


def record(*fields: tuple[str, Any], name: str = "Order") -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}
    )


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "int"]}]}
SCHEMA = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("exact", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("due", {"type": "int", "logicalType": "date"}),
    ("cents", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("raw", "bytes"),
    ("four", {"type": "fixed", "name": "Four", "size": 4}),
    ("tags", {"type": "array", "items": "string"}),
    ("inner", ["null", INNER]),
    ("others", {"type": "map", "values": {"type": "array", "items": "Inner"}}),
    ("wide", ["int", "long"]),
    ("f", "float"),
    ("d", "double"),
    ("yes", "boolean"),
)
DDL = (
    "struct<id:bigint,name:string,kind:string,at:timestamp,exact:timestamp,due:date,cents:decimal(10,2),raw:binary,"
    "four:binary,tags:array<string>,inner:struct<x:int>,others:map<string,array<struct<x:int>>>,wide:bigint,f:float,"
    "d:double,yes:boolean>"
)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
INNERS = st.fixed_dictionaries({"x": st.none() | st.integers(-(2**31), 2**31 - 1)})
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(),
        "kind": st.sampled_from(["A", "B"]),
        "at": TIMES.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
        "exact": st.none() | TIMES,
        "due": st.dates(),
        "cents": st.decimals(-99_999_999, 99_999_999, places=2),
        "raw": st.binary(),
        "four": st.binary(min_size=4, max_size=4),
        "tags": st.lists(st.text()),
        "inner": st.none() | INNERS,
        "others": st.dictionaries(st.text(), st.lists(INNERS, max_size=2), max_size=3),
        "wide": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "yes": st.booleans(),
    }
)


def written(schema: str, value: Mapping[str, Any], id: int | None = None) -> bytes:
    data = io.BytesIO() if id is None else io.BytesIO(struct.pack(">bI", 0, id))
    data.seek(0, io.SEEK_END)
    schemaless_writer(data, json.loads(schema), dict(value))
    return data.getvalue()


def avro(schema: str, url: str | None = None) -> TypedValue:
    options = {"value.format": "avro", "value.schema": schema} | ({"value.registry.url": url} if url else {})
    typed = typed_value(options)
    assert typed is not None
    return typed


def kind_of(typed: TypedValue) -> StructType:
    kind = column_types(typed)[VALUE]
    assert isinstance(kind, StructType)
    return kind


def column(typed: TypedValue, *values: bytes | None) -> TypedColumn:
    return open_reader(typed.form, typed.registry).of(pa.array(values, pa.binary()))


def read(typed: TypedValue, *values: bytes | None) -> list[Any]:
    rows: list[Any] = column(typed, *values).column.to_pylist()
    return rows


def corrupt(typed: TypedValue, *values: bytes | None) -> list[int]:
    """Return which of the values are corrupt."""
    return [row for row, each in enumerate(column(typed, *values).corrupt.to_pylist()) if each]


def test_the_type_of_a_schema_is_the_one_that_from_avro_gives_it() -> None:
    assert kind_of(avro(SCHEMA)).simpleString() == DDL


@pytest.mark.extended
@settings(max_examples=200)
@given(orders=st.lists(st.none() | ORDERS, max_size=5))
def test_a_value_is_the_record_that_was_written(orders: list[dict[str, Any] | None]) -> None:
    rows = read(avro(SCHEMA), *(None if order is None else written(SCHEMA, order) for order in orders))
    for order in orders:
        if order is not None:
            order["others"] = list(order["others"].items())
    assert rows == orders


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


KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "int", "default": 5}]}
PAIR["fields"] += [{"name": "y", "type": "int"}, {"name": "b", "type": "bytes", "default": "\u00ff"}]  # type: ignore[operator]


IDS = count(100)
"""A schema is kept by URL and id, and a port may come again."""


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


def test_a_value_of_another_schema_is_resolved_to_the_one_that_is_asked_for() -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = json.loads(record(("id", "long"), ("added", "string")))
    new["fields"][1]["default"] = "none"
    with registry({7: (200, {"schema": old}), 2**31 + 1: (200, {"schema": json.dumps(new)})}) as server:
        typed = avro(json.dumps(new), server.url)
        first = written(old, {"id": 1, "gone": "x"}, 7)
        second = written(json.dumps(new), {"id": 2, "added": "y"}, 2**31 + 1)
        expected = [{"id": 1, "added": "none"}, None, {"id": 2, "added": "y"}]
        assert read(typed, first, None, second) == expected
        assert read(typed, first, None, second) == expected
        assert server.asked == ["/schemas/ids/7", f"/schemas/ids/{2**31 + 1}"]


ONE = record(("id", "long"))


@pytest.mark.parametrize("value", [b"", b"\x80", b"\x02\x02"])
def test_bytes_that_are_no_such_record_are_corrupt(value: bytes) -> None:
    assert corrupt(avro(ONE), written(ONE, {"id": 1}), value) == [1]


@pytest.mark.parametrize("below", [-1, -2, -3])
@pytest.mark.parametrize("kind", [KIND, ["null", "long"]])
def test_a_member_below_the_first_is_none(kind: Any, below: int) -> None:
    assert corrupt(avro(record(("v", kind))), written(ONE, {"id": below})) == [0]


def test_a_number_that_its_type_cannot_hold_is_corrupt() -> None:
    assert corrupt(avro(record(("id", "int"))), written(ONE, {"id": 1}), written(ONE, {"id": 2**40})) == [1]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x01\0\0\0\x07\x02", id="another first byte"),
        pytest.param(b"\0\0\0", id="too short"),
        pytest.param(b"\0\0\0\0\x08\x02", id="an id that the registry does not have"),
        pytest.param(b"\0\0\0\0\x09\x02", id="a schema of Protobuf"),
        pytest.param(b"\0\0\0\0\x07", id="an id and nothing behind it"),
    ],
)
def test_a_value_without_a_schema_of_the_registry_is_corrupt(value: bytes) -> None:
    with registry({7: (200, {"schema": ONE}), 9: (200, {"schema": "…", "schemaType": "PROTOBUF"})}) as server:
        assert corrupt(avro(ONE, server.url), written(ONE, {"id": 1}, 7), value) == [1]


def test_a_schema_of_the_registry_within_itself_is_refused_before_a_value_is_followed_into_any_depth() -> None:
    id = next(IDS)
    with registry({id: (200, {"schema": record(("again", ["null", "Order"]))})}) as server:
        assert corrupt(avro(record(("again", ["null", INNER])), server.url), struct.pack(">bI", 0, id) + b"\0") == [0]


def test_a_registry_that_does_not_answer_is_unavailable_and_one_that_refuses_denies_access() -> None:
    with registry({7: (401, {})}) as server:
        with pytest.raises(AccessDenied, match="the schema registry refuses"):
            read(avro(ONE, server.url), written(ONE, {"id": 1}, 7))
    with pytest.raises(Unavailable, match="the schema registry does not answer"):
        read(avro(ONE, server.url), written(ONE, {"id": 1}, 8))


def test_credentials_of_the_url_go_to_the_registry_and_into_no_message() -> None:
    with registry({11: (200, {"schema": ONE}), 12: (403, {})}) as server:
        url = server.url.replace("http://", "http://user:secr%40t@")
        assert read(avro(ONE, url), written(ONE, {"id": 1}, 11)) == [{"id": 1}]
        assert server.headers["authorization"] == "Basic " + b64encode(b"user:secr@t").decode()
        with pytest.raises(AccessDenied) as raised:
            read(avro(ONE, url), written(ONE, {"id": 1}, 12))
        assert "secr" not in str(raised.value) + repr(avro(ONE, url))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is no Avro schema"),
        ('{"type": "record"}', "is no Avro schema"),
        (record(("a", "null")), "no type that can be read here. type=null"),
        (record(("a", ["null", "Order"])), "no type that can be read here. type=Order"),
        (record(("a", "int"), ("A", "int")), "a field is named twice. fields=a,A"),
    ],
)
def test_a_schema_that_cannot_be_read_here_is_refused_and_named(schema: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        avro(schema)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"value.format": "avro"}, r"option value\.format=avro needs value\.schema"),
        ({"value.format": "json", "value.registry.url": "http://x"}, r"option value\.registry\.url needs .*avro"),
        ({"value.format": "avro", "value.schema": ONE, "value.registry.url": "x:1"}, r"value\.registry\.url is a URL"),
        (
            {"value.format": "avro", "value.schema": ONE, "value.registry.url": "http://u:secret@x:y"},
            r"is a URL like \S+$",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        typed_value(options)


@pytest.mark.spark
@pytest.mark.kafka
def test_a_query_reads_records_of_the_registry_and_keeps_the_bytes_of_one_that_is_none(
    spark: SparkSession, tiers: Tiers
) -> None:
    name = tiers.create(f"typed-avro-{os.getpid()}")
    order = {
        "id": 1, "name": "é", "kind": "B", "at": datetime(2026, 1, 1, tzinfo=UTC), "exact": None,
        "due": date(2026, 1, 2),
        "cents": Decimal("1.25"), "raw": b"\0", "four": b"abcd", "tags": ["a"], "inner": {"x": None},
        "others": {"k": [{"x": 1}]}, "wide": 2, "f": 0.5, "d": 0.25, "yes": True,
    }  # fmt: skip
    with registry({7: (200, {"schema": SCHEMA})}) as server:
        values = [written(SCHEMA, order | {"id": number}, 7) for number in range(300)]
        tiers.produce(name, 0, [{"value": value} for value in values])
        options = tiers.options(
            subscribe=name, columns="value,offset,_corrupt", value__format="avro", value__schema=SCHEMA
        )
        options["value.registry.url"] = server.url
        frame = spark.read.format("tierstate").options(**options).load()
        assert frame.schema["value"].dataType.simpleString() == DDL
        values_read = {row["offset"]: row["value"].asDict(recursive=True) for row in frame.collect()}
        assert len(values_read) == 300
        assert all(values_read[number]["id"] == number for number in range(300))
        assert (values_read[5]["cents"], values_read[5]["others"], bytes(values_read[5]["four"])) == (
            Decimal("1.25"),
            {"k": [{"x": 1}]},
            b"abcd",
        )
        tiers.produce(name, 0, [{"value": b"\0\0\0\0\x07\x02"}])
        rows = (
            spark.read.format("tierstate").options(**options).load().where("offset >= 299").orderBy("offset").collect()
        )
        assert rows[0]["_corrupt"] is None
        assert (rows[1]["value"], bytes(rows[1]["_corrupt"]["value"])) == (None, b"\0\0\0\0\x07\x02")


@pytest.mark.spark
@pytest.mark.kafka
def test_the_example_of_the_page_reads_what_was_written(spark: SparkSession, tiers: Tiers) -> None:
    name = tiers.create(f"typed-avro-page-{os.getpid()}")
    (block,) = executed("docs/spark.md", __file__)
    names: dict[str, Any] = {"spark": spark}
    exec(block.code.partition("orders = (")[0], names)
    order, id = {"item": "pen", "at": datetime(2026, 1, 1, tzinfo=UTC)}, next(IDS)
    tiers.produce(name, 0, [{"value": written(names["schema"], order | {"id": each}, id)} for each in range(50)])
    with registry({id: (200, {"schema": names["schema"]})}) as server:
        exec(replaced(block.code, {**tiers.page_texts(name), "http://127.0.0.1:8081": server.url}), names)
        rows = sorted(tuple(row) for row in names["orders"].select("value.id", "value.item").collect())
    assert rows == [(each, "pen") for each in range(50)]
