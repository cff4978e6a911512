"""An Avro schema with every type that Spark reads, values of it, and their columns by tierstate."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
from fastavro import schemaless_writer
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from tierstate.spark.columns import VALUE, TypedValue, column_types, typed_value
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


ONE = record(("id", "long"))


IDS = count(100)
"""A schema is kept by URL and id, and a port may come again."""
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
