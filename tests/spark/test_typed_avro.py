"""``value.format=avro``: `value` is the record that was written, also by another schema of a registry."""

from __future__ import annotations

import json
import os
import struct
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.docs.blocks import executed
from tests.docs.page_shell import replaced
from tests.servers.schema_registry import registry
from tests.spark.avro_values import (
    DDL,
    IDS,
    INNER,
    KIND,
    ONE,
    ORDERS,
    SCHEMA,
    avro,
    corrupt,
    kind_of,
    read,
    record,
    written,
)
from tests.spark.tiers import Tiers
from tierstate.spark.columns import typed_value
from tierstate.state.errors import AccessDenied, InvalidRequest, Unavailable


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
