"""Compiled code reads Avro values as fastavro does, and leaves it the values that are not plainly whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.schema_registry import registry
from tests.values.avro_samples import Schemas, damaged, record, unlogical, written
from tierstate.state.errors import InvalidRequest
from tierstate.values.avro_columns import REJECTED, AvroColumns
from tierstate.values.avro_values import AvroValues
from tierstate.values.form import Form
from tierstate.values.schema_registry import RegistryAccess

IDS = count(90_000)
EACH = 40
"""The number of values of each writer schema."""


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type with a number for each time: not every one is a Python time."""
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date(kind) else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type)))
    return pa.map_(kind.key_type, plain(kind.item_type)) if pa.types.is_map(kind) else kind


def assert_as_one_by_one(reader: AvroValues, values: list[bytes | None]) -> int:
    """Return how many of the values are corrupt."""
    column = pa.array([b"before", *values], pa.binary())[1:]
    together = reader.of(column)
    single = reader.one_by_one(column)
    together.column.validate(full=True)
    assert together.column.type == single.column.type
    assert together.corrupt.equals(single.corrupt)
    texts = [repr(each.column.cast(plain(single.column.type)).to_pylist()) for each in (together, single)]
    assert texts[0] == texts[1]
    return int(np.count_nonzero(single.corrupt))


def drawn(chance: Random, schemas: Schemas, schema: Any, id: int | None) -> Iterator[bytes | None]:
    """Yield values of which few are damaged."""
    for _ in range(EACH):
        value = written(json.dumps(unlogical(schema)), schemas.value(schema))
        if chance.random() < 0.1:
            value = damaged(chance, value)
        whole = value if id is None else b"\0" + id.to_bytes(4, "big") + value
        yield chance.choice([None, damaged(chance, whole)]) if chance.random() < 0.05 else whole


@pytest.mark.parametrize("_", range(4))
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_values_are_read_together_as_one_by_one(_: int, seed: int) -> None:
    chance = Random(seed)
    schemas = Schemas(chance)
    schema = schemas.record() if chance.random() < 0.8 else schemas.type(0)
    form = Form("avro", json.dumps(schema))
    reader = AvroValues(form, form.kind(), None, grows=False)
    assert AvroColumns(form.schema, form.kind()).entry(form.schema) != REJECTED
    assert_as_one_by_one(reader, list(drawn(chance, schemas, schema, None)))


ORDER = record(("kept", "long"))
COUNTS = '{"type": "map", "values": "int"}'
LISTS = '{"type": "array", "items": "int"}'


@pytest.mark.parametrize(
    ("schema", "value", "together"),
    [
        pytest.param(COUNTS, b"\x04\x02a\x02\x02a\x04\0", False, id="a key twice"),
        pytest.param(COUNTS, b"\x04\x02a\x02\x02b\x04\0", True, id="two keys"),
        pytest.param(LISTS, b"\x03\x04\x02\x04\0", True, id="a block with its size"),
        pytest.param(LISTS, b"\x03\x06\x02\x04\0", False, id="a block with another size"),
        pytest.param(LISTS, b"\x02\x02\x02\x04\0", True, id="two blocks"),
        pytest.param('"boolean"', b"\x05", False, id="a boolean of 5"),
        pytest.param('"int"', b"\x80\x80\x80\x80\x10", False, id="an int of 33 bits"),
        pytest.param('"long"', b"\x80" * 10 + b"\x01", False, id="a long of 11 bytes"),
        pytest.param('"string"', b"\x06\xed\xa0\x80", False, id="a surrogate"),
        pytest.param('["null", "long"]', b"\x04", False, id="no such member"),
        pytest.param('"long"', b"\x02\0", False, id="a byte too many"),
    ],
)
def test_what_is_not_plainly_one_value_is_left_to_fastavro(schema: str, value: bytes, together: bool) -> None:
    form = Form("avro", schema)
    columns = AvroColumns(schema, form.kind())
    size, entry = np.array([0, len(value)]), np.array([columns.entry(schema)])
    _, rejected = columns.read(np.frombuffer(value, np.uint8), size[:1], size[1:], entry)
    assert rejected.tolist() == [not together]
    assert_as_one_by_one(AvroValues(form, form.kind(), None, grows=False), [value, None, value])


def test_a_schema_of_few_bytes_and_a_billion_fields_is_not_compiled() -> None:
    kind: Any = "int"
    for level in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": [f"R{level - 1}" if level else "int"]}]
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    writer = record(("kept", "long"), ("left", kind))
    assert AvroColumns(ORDER, Form("avro", ORDER).kind()).entry(writer) == REJECTED


@pytest.mark.parametrize("cut", [b"\x01\x02", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x01\xfe\x7f"])
@pytest.mark.parametrize("kept", ["long", "string"], ids=["together", "one by one"])
def test_a_field_that_is_left_out_must_be_whole_too(kept: str, cut: bytes) -> None:
    """fastavro would skip more bytes than there are, for years if a list claims so many elements."""
    writer, reader = record(("kept", "long"), ("left", {"type": "array", "items": "float"})), record(("kept", kept))
    with registry({(id := next(IDS)): (200, {"schema": writer})}) as server:
        values = AvroValues(form := Form("avro", reader, True), form.kind(), RegistryAccess(server.url), grows=False)
        whole = written(writer, {"kept": 7, "left": [0.5]}, id)
        column = values.of(pa.array([whole, whole[:6] + cut, whole[:-1]], pa.binary()))
        assert column.corrupt.to_pylist() == [kept == "string", True, True]


@pytest.mark.parametrize("_", range(4))
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_values_of_several_schemas_are_resolved_together_as_one_by_one(_: int, seed: int) -> None:
    chance = Random(seed)
    schemas = Schemas(chance)
    first = schemas.record()
    writers = [first, schemas.with_others(first), schemas.reader(first)]
    form = Form("avro", json.dumps(schemas.reader(first) if chance.random() < 0.8 else first), True)
    with suppress(InvalidRequest):
        kind = form.kind()
        if AvroColumns(form.schema, kind).has_unions:
            return  # fastavro does not say which type a value has
        with registry({(id := next(IDS)): (200, {"schema": json.dumps(each)}) for each in writers}) as server:
            ids = range(id - 2, id + 1)
            reader = AvroValues(form, kind, RegistryAccess(server.url), grows=False)
            values = [
                each for id, writer in zip(ids, writers, strict=True) for each in drawn(chance, schemas, writer, id)
            ]
            chance.shuffle(values)
            assert_as_one_by_one(reader, values)


PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
KINDS = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
BRANCHES: list[list[tuple[Any, list[Any]]]] = [
    [("int", [0, -1]), ("string", ["", "é"])],
    [("string", ["x"]), (KINDS, ["A", "B"]), ("bytes", [b"\xff"]), ("long", [1 << 40]), ("int", [7])],
    [(PAIR, [{"x": 1, "y": "z"}]), ("boolean", [True]), ({"type": "array", "items": "long"}, [[], [1, 2]])],
    [("float", [0.5]), ("double", [0.1]), ("string", ["x"])],
]


@pytest.mark.parametrize("branches", BRANCHES, ids=["2", "5", "nested", "floats"])
@pytest.mark.parametrize("around", ["alone", "list"])
def test_each_type_of_a_union_is_a_member_of_a_struct(branches: list[tuple[Any, list[Any]]], around: str) -> None:
    """A record around each type adds no byte, and lets fastavro write the type that is meant."""
    named = [record(("v", kind), name=f"Of{at}") for at, (kind, _) in enumerate(branches)]
    unions: list[Any] = [["null", *map(json.loads, named)], ["null", *(kind for kind, _ in branches)]]
    if around == "list":
        unions = [{"type": "array", "items": union} for union in unions]
    writer, schema = (record(("u", union), ("end", "int")) for union in unions)
    form, nothing = Form("avro", schema), dict.fromkeys([f"member{at}" for at in range(len(branches))])
    values, expected = list[bytes](), list[dict[str, Any]]()
    for at, value in [(-1, None), *((at, each) for at, (_, some) in enumerate(branches) for each in some)] * 3:
        one = None if at < 0 else {"-type": f"Of{at}", "v": value}
        row = None if at < 0 else nothing | {f"member{at}": value}
        values.append(written(writer, {"u": [one, one] if around == "list" else one, "end": len(values)}))
        expected.append({"u": [row, row] if around == "list" else row, "end": len(expected)})
    typed = AvroValues(form, form.kind(), None, grows=False).of(pa.array([*values, None, values[0] + b"\0"]))
    typed.column.validate(full=True)
    rows = typed.column.to_pylist()
    assert repr(rows[:-2]) == repr(pa.array(expected, form.kind()).to_pylist())
    assert typed.corrupt.to_pylist() == [False] * (len(values) + 1) + [True]


def test_a_value_of_one_type_becomes_the_member_of_its_own_type_or_else_of_a_wider_one() -> None:
    reader = record(("v", ["double", "long", "string"]))
    writers = [record(("v", kind)) for kind in ("int", "long", "float", ["null", "string"], "bytes")]
    values: list[Any] = [1, 2, 0.5, "x", b"y"]
    with registry({(id := next(IDS)): (200, {"schema": each}) for each in writers}) as server:
        form, first = Form("avro", reader, True), id - len(writers) + 1
        typed = AvroValues(form, form.kind(), RegistryAccess(server.url), grows=False).of(
            pa.array(
                [
                    written(each, {"v": value}, first + at)
                    for at, (each, value) in enumerate(zip(writers, values, strict=True))
                ]
            )
        )
    members = [
        {name: value for name, value in row["v"].items() if value is not None} for row in typed.column.to_pylist()
    ]
    assert members == [{"member0": 1.0}, {"member1": 2}, {"member0": 0.5}, {"member2": "x"}, {"member2": "y"}]
