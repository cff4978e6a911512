"""``format="avro"``: the whole bytes are one value, of the form's schema or of one that they name in the registry."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from tests.servers.schema_registry import Answer, Registry, registry
from tests.values.avro_samples import record, written
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import AccessDenied, InvalidRequest, TimedOut, Unavailable
from tierstate.values.avro_values import latest_form
from tierstate.values.evolution import evolved
from tierstate.values.form import Form, SchemaGrown
from tierstate.values.open import open_reader
from tierstate.values.schema_registry import RegistryAccess, SchemaRegistry

IDS = count(5000)
"""A schema is kept by access and id, and a port may come again."""
ORDER = record(("id", "long"), ("item", ["null", "string"]))
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def read(form: Form, values: list[bytes | None], url: str = "", grows: bool = False) -> tuple[list[Any], list[bool]]:
    values_read = open_reader(form, RegistryAccess(url) if url else None, grows=grows).of(pa.array(values, pa.binary()))
    assert values_read.column.type == form.kind()
    return values_read.column.to_pylist(), values_read.corrupt.to_pylist()


@contextmanager
def registered(*schemas: Any) -> Iterator[tuple[Registry, list[int]]]:
    """Yield a registry with an id for each schema; a tuple is a status and a body."""
    ids = [next(IDS) for _ in schemas]
    answers: dict[int | str, Answer] = {
        id: each if isinstance(each, tuple) else (200, {"schema": each}) for id, each in zip(ids, schemas, strict=True)
    }
    with registry(answers) as server:
        yield server, ids


def test_bytes_are_one_value_and_none_are_left_over() -> None:
    whole = written(ORDER, {"id": 1, "item": "pen"})
    rows, corrupt = read(Form("avro", ORDER), [whole, whole + b"\0", whole[:-1], b"", None, b"\x02\x04"])
    assert rows == [{"id": 1, "item": "pen"}, None, None, None, None, None]
    assert corrupt == [False, True, True, True, False, True]


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ('"string"', "é", pa.string()),
        ('"long"', -5, pa.int64()),
        ('"int"', 7, pa.int32()),
        ('"bytes"', b"\xff", pa.binary()),
        ('["null", "long"]', None, pa.int64()),
        ('{"type": "enum", "name": "Kind", "symbols": ["A"]}', "A", pa.string()),
    ],
)
def test_a_key_of_one_primitive_is_a_column_of_it(schema: str, value: Any, kind: pa.DataType) -> None:
    whole = written(schema, value)
    assert Form("avro", schema).kind() == kind
    assert read(Form("avro", schema), [whole, whole + b"x", None]) == ([value, None, None], [False, True, False])


@pytest.mark.parametrize(
    ("base", "logical", "value"),
    [
        ("int", "time-millis", 86_399_999),
        ("long", "time-micros", 5),
        ("long", "timestamp-nanos", 1_795_964_808_900_000_001),
        ("long", "local-timestamp-nanos", -1),
        ("int", "timestamp-millis", 7),
        ("string", "decimal", "1.5"),
        ("bytes", "mine", b"\0"),
    ],
)
def test_an_unknown_logical_type_is_read_as_its_base_type(base: str, logical: str, value: Any) -> None:
    schema = json.dumps({"type": base, "logicalType": logical})
    assert Form("avro", schema).kind() == Form("avro", json.dumps(base)).kind()
    assert read(Form("avro", schema), [written(json.dumps(base), value)]) == ([value], [False])


def test_a_uuid_of_16_bytes_is_its_bytes() -> None:
    schema = {"type": "fixed", "size": 16, "name": "Id", "logicalType": "uuid"}
    value = bytes(range(16))
    assert read(Form("avro", json.dumps(schema)), [value, value[1:]]) == ([value, None], [False, True])


@pytest.mark.parametrize("schema", ['["null", "long"]', '{"type": "enum", "name": "Kind", "symbols": ["A"]}'])
@pytest.mark.parametrize("below", [b"\x01", b"\x03", b"\x05"])
def test_a_member_below_the_first_is_corrupt(schema: str, below: bytes) -> None:
    assert read(Form("avro", schema), [below]) == ([None], [True])


def test_a_number_that_its_type_cannot_hold_is_corrupt_and_its_neighbours_are_not() -> None:
    values = [written('"long"', each) for each in (1, 2**40, 3)]
    assert read(Form("avro", '"int"'), [*values]) == ([1, None, 3], [False, True, False])


def test_a_value_of_another_schema_is_resolved_to_ours() -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = record(("id", "long"), ("added", "string", "none"))
    with registered(old, new) as (server, (first, second)):
        values = [written(old, {"id": 1, "gone": "x"}, first), None, written(new, {"id": 2, "added": "y"}, second)]
        rows, corrupt = read(Form("avro", new, True), values * 2, server.url)
        assert rows == [{"id": 1, "added": "none"}, None, {"id": 2, "added": "y"}] * 2
        assert not any(corrupt)
        assert server.asked == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]


def test_a_registered_key_of_one_primitive_is_resolved_too() -> None:
    with registered('"int"', '"string"') as (server, (number, text)):
        values = [written('"int"', 7, number), written('"string"', "x", text), written('"int"', 7, number) + b"x"]
        assert read(Form("avro", '"long"', True), [*values], server.url) == ([7, None, None], [False, True, True])


def test_a_schema_that_refers_to_others_is_read_with_them() -> None:
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    writer: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": "shop.Item"}]}
    writer["fields"] += [{"name": "b", "type": {"type": "array", "items": "shop.Item"}}]
    whole = json.dumps(writer | {"fields": [{"name": "a", "type": item}, writer["fields"][1]]})
    refers = [{"name": "shop.Item", "subject": "items", "version": 3}]
    with registered((200, {"schema": json.dumps(writer), "references": refers})) as (server, (id,)):
        server.answers["/subjects/items/versions/3"] = 200, {"schema": json.dumps(item)}
        value = written(whole, {"a": {"n": 1}, "b": [{"n": 2}]}, id)
        assert read(Form("avro", whole, True), [value], server.url) == ([{"a": {"n": 1}, "b": [{"n": 2}]}], [False])


@pytest.mark.parametrize("kind", [["null", "Order"], {"type": "array", "items": "null"}])
@pytest.mark.parametrize("grows", [False, True])
def test_a_schema_within_itself_or_of_endless_lists_is_never_decoded_by(kind: Any, grows: bool) -> None:
    """The one would end the process, the other exhaust its memory; the value of each here would do no harm."""
    with registered(record(("again", kind))) as (server, (id,)):
        value = b"\0" + id.to_bytes(4, "big") + b"\0"
        assert read(Form("avro", record(("id", "long", 5)), True), [value], server.url, grows) == ([None], [True])


def test_bytes_without_a_schema_of_the_registry_are_corrupt() -> None:
    answers: tuple[Any, ...] = (404, {}), (200, {"schema": "…", "schemaType": "PROTOBUF"}), "{", ORDER
    with registered(*answers) as (server, ids):
        values = [written(ORDER, {"id": 1, "item": None}, id) for id in ids]
        values += [b"", b"\0\0\0", b"\1" + values[-1][1:], values[-1] + b"x"]
        rows, corrupt = read(Form("avro", ORDER, True), [*values], server.url)
        assert [row for row in rows if row is not None] == [{"id": 1, "item": None}]
        assert [at for at, each in enumerate(corrupt) if not each] == [3]


def test_a_registry_that_does_not_answer_makes_nothing_corrupt() -> None:
    with registered((503, {}), (401, {})) as (server, (away, refused)):
        value = written(ORDER, {"id": 1, "item": None}, away)
        with pytest.raises(Unavailable, match="the schema registry does not answer"):
            read(Form("avro", ORDER, True), [value], server.url)
        with pytest.raises(AccessDenied, match="the schema registry refuses"):
            read(Form("avro", ORDER, True), [written(ORDER, {"id": 1, "item": None}, refused)], server.url)
        server.answers[f"/schemas/ids/{away}"] = 200, {"schema": ORDER}
        assert read(Form("avro", ORDER, True), [value], server.url)[1] == [False]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (MICROS, MILLIS),
        (["null", MICROS], MILLIS),
        (MICROS, "long"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        ),
    ],
)
def test_a_time_or_a_decimal_in_another_unit_is_corrupt_and_never_another_number(ours: Any, theirs: Any) -> None:
    plain = "bytes" if isinstance(theirs, dict) and theirs["type"] == "bytes" else "long"
    value = written(record(("v", plain)), {"v": b"\1" if plain == "bytes" else 1})
    with registered(record(("v", theirs)), record(("v", ours))) as (server, ids):
        values: list[bytes | None] = [b"\0" + id.to_bytes(4, "big") + value for id in ids]
        values[1] = b"\0" + ids[1].to_bytes(4, "big") + (b"\2" if isinstance(ours, list) else b"") + value
        assert read(Form("avro", record(("v", ours)), True), values, server.url)[1] == [True, False]


def test_a_schema_with_more_fields_is_reported_before_any_row() -> None:
    new, newer = record(("id", "long"), ("a", "string")), record(("b", "int"), ("id", "long"))
    with registered(ORDER, new, newer) as (server, ids):
        form, access = Form("avro", ORDER, True), RegistryAccess(server.url)
        values = [
            written(ORDER, {"id": 1, "item": "x"}, ids[0]),
            written(new, {"id": 2, "a": "y"}, ids[1]),
            written(newer, {"b": 3, "id": 3}, ids[2]),
        ]
        reader = open_reader(form, access, grows=True)
        for _ in range(2):
            with pytest.raises(SchemaGrown) as raised:
                reader.of(pa.array(values, pa.binary()))
        grown = raised.value.form
        assert [field.name for field in grown.kind()] == ["id", "item", "a", "b"]
        rows, corrupt = read(grown, [*values], server.url, grows=True)
        assert rows == [
            {"id": 1, "item": "x", "a": None, "b": None},
            {"id": 2, "item": None, "a": "y", "b": None},
            {"id": 3, "item": None, "a": None, "b": 3},
        ]
        assert not any(corrupt)
        assert pickle.loads(pickle.dumps(raised.value)).form == grown


def test_a_schema_that_cannot_be_joined_is_refused_with_its_id_and_its_field() -> None:
    with registered(record(("id", "string"))) as (server, (id,)):
        with pytest.raises(InvalidRequest, match=rf"another type. field=id type=long wanted=string schema={id}"):
            read(Form("avro", ORDER, True), [written(record(("id", "string")), {"id": "x"}, id)], server.url, True)


def test_the_newest_schema_of_a_subject_is_a_form_with_all_that_it_refers_to() -> None:
    item = {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}]}
    answer = {"schema": record(("item", "Item")), "references": [{"name": "Item", "subject": "items", "version": 1}]}
    answers: dict[int | str, Answer] = {
        "/subjects/shop%2Forders-value/versions/latest": (200, answer | {"id": 9, "version": 4}),
        "/subjects/items/versions/1": (200, {"schema": json.dumps(item)}),
        "/subjects/proto-value/versions/latest": (200, {"schema": "…", "schemaType": "PROTOBUF", "id": 3}),
        "/subjects/nested-value/versions/latest": (200, {"schema": record(("a", "Order")), "id": 4}),
    }
    with registry(answers) as server:
        access = RegistryAccess(server.url)
        form = latest_form(access, "shop/orders-value")
        assert (form.registered, form.kind()) == (True, pa.struct([("item", pa.struct([("n", pa.int32())]))]))
        assert SchemaRegistry(access, SystemClock()).latest("proto-value").id == 3
        for subject, says in (
            ("gone-value", "has no such subject. subject=gone-value"),
            ("proto-value", "is not Avro's. type=PROTOBUF schema=3"),
            ("nested-value", "no type that can be read here. type=Order"),
        ):
            with pytest.raises(InvalidRequest, match=says):
                latest_form(access, subject)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (Form("avro", record(("a", ["null", "Order"]))), "no type that can be read here. type=Order"),
        (Form("avro", record(("a", {"type": "array", "items": "null"}))), "no type that can be read here. type=null"),
        (Form("avro", "{"), "the schema is no Avro schema"),
        (Form("avro", ORDER, True), r"need a schema registry: set registry\.url"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused_before_any_value(form: Form, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_reader(form, None)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_registry_that_is_too_slow_is_a_timeout(retries: int) -> None:
    """The caller and the request have the same time limit: either may end first."""
    go = Event()

    def wait(path: str) -> None:
        go.wait(20)

    with registry({1: (200, {"schema": '"int"'})}) as server:
        server.before = wait
        try:
            slow = SchemaRegistry(RegistryAccess(server.url, timeout=0.05), SystemClock(), retries=retries)
            with pytest.raises(TimedOut, match="did not answer in time"):
                slow.schema(1)
        finally:
            go.set()


def test_a_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(RegistryAccess("http://x", "me", "secret"))


NODE = {"name": "Node", "type": "record", "fields": [{"name": "v", "type": "int"}]}
NODE["fields"] += [{"name": "next", "type": ["null", "Node"]}]  # type: ignore[operator]
TREE = record(("id", "long"), ("list", NODE), ("tag", "string"), ("none", {"type": "array", "items": "null"}))


def test_a_field_without_a_type_is_its_bytes_and_stops_no_other() -> None:
    form = Form("avro", TREE)
    kinds = [("id", pa.int64()), ("list", pa.binary()), ("tag", pa.string()), ("none", pa.binary())]
    assert form.kind() == pa.struct(kinds)
    assert list(form.opaque()) == ["list", "none"]
    assert "no type that can be read here. type=Node" in form.opaque()["list"]
    lists = [{"v": 1, "next": None}, {"v": -300, "next": {"v": 2, "next": None}}]
    values: list[bytes | None] = [
        written(TREE, {"id": 7, "list": each, "tag": "é", "none": [None, None]}) for each in lists
    ]
    deep = written(TREE, {"id": 7, "list": lists[0], "tag": "x", "none": []})[:2] + b"\x02\x02" * 500
    rows, corrupt = read(form, [*values, None, b"", values[0][:-3], values[0] + b"\0", deep])  # type: ignore[index,operator]
    assert rows[:2] == [
        {"id": 7, "list": written(json.dumps(NODE), each), "tag": "é", "none": b"\x04\0"} for each in lists
    ]
    assert corrupt == [False, False, False, True, True, True, True]


def test_bytes_of_a_field_without_a_type_are_those_of_the_writer_and_null_where_it_has_none() -> None:
    optional = json.loads(TREE)
    optional["fields"][1]["type"] = ["null", NODE]
    older, plain = record(("id", "int"), ("tag", "string")), record(("id", "int"), ("list", "int"), ("tag", "string"))
    with registered(json.dumps(optional), older, plain) as (server, (id, old, other)):
        form = Form("avro", json.dumps(optional), True)
        whole = {"id": 1, "list": {"v": 5, "next": None}, "tag": "a", "none": []}
        rows, corrupt = read(
            form,
            [
                written(json.dumps(optional), whole, id),
                written(json.dumps(optional), whole | {"list": None}, id),
                written(older, {"id": 2, "tag": "b"}, old),
                written(plain, {"id": 2, "list": 3, "tag": "b"}, other),
            ],
            server.url,
        )
    assert [row and row["list"] for row in rows] == [b"\x02\x0a\0", None, None, None]
    assert corrupt == [False, False, False, True]
    assert evolved(form, Form("avro", older, True)).kind() == form.kind()
