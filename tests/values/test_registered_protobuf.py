"""Protobuf of a schema registry is shown by the message that its indexes name, or a reason is shown."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.servers.schema_registry import Answer
from tests.values.registered import framed, reading, reason, shown


def proto(name: str, package: str = "", **fields: Any) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", **fields)


def field(
    name: str, number: int, kind: int, type_name: str = "", label: int = 1
) -> descriptor_pb2.FieldDescriptorProto:
    made = descriptor_pb2.FieldDescriptorProto(name=name, number=number, type=kind, label=label)
    if type_name:
        made.type_name = type_name
    return made


def message(name: str, *fields: Any, nested: Any = ()) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, nested_type=nested)


def serialized(file: descriptor_pb2.FileDescriptorProto, *references: dict[str, Any]) -> Answer:
    text = b64encode(file.SerializeToString()).decode()
    return 200, {"schemaType": "PROTOBUF", "schema": text, "references": list(references)}


MONEY = proto("money.proto", "shop", message_type=[message("Money", field("units", 1, 3))])
SALE = proto(
    "sale.proto",
    "shop",
    dependency=["money.proto", "google/protobuf/timestamp.proto"],
    message_type=[
        message("First", field("x", 1, 5)),
        message(
            "Sale",
            field("total", 1, 11, ".shop.Money"),
            field("at", 2, 11, ".google.protobuf.Timestamp"),
            nested=[message("Line", field("sku", 1, 9))],
        ),
    ],
)


def sale_answers() -> dict[int | str, Answer]:
    """A registry names what it gives ``default``, whatever a file was called."""
    money = descriptor_pb2.FileDescriptorProto()
    money.CopyFrom(MONEY)
    money.name = "default"
    refers = {"name": "money.proto", "subject": "money", "version": 1}
    return {
        9: (200, {"schemaType": "PROTOBUF", "schema": "syntax…"}),
        "/schemas/ids/9?format=serialized": serialized(SALE, refers),
        "/subjects/money/versions/1?format=serialized": serialized(money),
    }


def made(name: str, values: dict[str, Any]) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    for file in (stamp, MONEY, SALE):
        pool.Add(file)
    from google.protobuf import json_format

    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    json_format.ParseDict(values, found)
    return bytes(found.SerializeToString())


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (b"\0", "shop.First", {"x": 5}),
        (b"\2\2", "shop.Sale", {"total": {"units": str(2**60)}, "at": "2026-01-02T03:04:05Z"}),
        (b"\4\2\0", "shop.Sale.Line", {"sku": "a-1"}),
    ],
)
def test_protobuf_is_shown_by_the_message_that_its_indexes_name(place: bytes, name: str, value: dict[str, Any]) -> None:
    with reading(sale_answers()) as (values, _):
        said = shown(values, framed(9, place + made(name, value)))
        assert said == {"schemaId": 9, "schemaType": "PROTOBUF", "value": value}


@pytest.mark.parametrize(
    "place", [b"", b"\2\x08", b"\1", b"\xff\xff\xff\xff\xff\xff", b"\2\xfe\xff\xff\xff\xff\1", b"\x7e"]
)
def test_a_message_that_is_not_in_its_schema_is_said(place: bytes) -> None:
    with reading(sale_answers()) as (values, _):
        assert "place" in reason(values, framed(9, place))


def test_damaged_protobuf_and_one_that_is_nested_without_end_are_said() -> None:
    deep = proto("deep.proto", message_type=[message("D", field("d", 1, 11, ".D"))])
    data = b""
    for _ in range(150):
        size = len(data)
        data = b"\n" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data
    answers: dict[int | str, Answer] = {
        5: (200, {"schemaType": "PROTOBUF", "schema": ""}),
        "/schemas/ids/5?format=serialized": serialized(deep),
    }
    with reading(answers) as (values, _):
        assert "not of its schema" in reason(values, framed(5, b"\0" + data))
        assert "not of its schema" in reason(values, framed(5, b"\0\n\x05"))


@pytest.mark.parametrize("text", ['syntax = "proto3";', b64encode(b"\xff\xff").decode()])
def test_a_registry_that_gives_no_serialized_protobuf_is_said(text: str) -> None:
    said = 200, {"schemaType": "PROTOBUF", "schema": text}
    with reading({5: said, "/schemas/ids/5?format=serialized": said}) as (values, _):
        assert "does not give the protobuf schema serialized" in reason(values, framed(5, b"\0"))


def test_an_import_that_the_registry_does_not_give_is_said() -> None:
    file = proto("x.proto", dependency=["os.proto"], message_type=[message("D", field("d", 1, 11, ".Other"))])
    answers: dict[int | str, Answer] = {
        5: (200, {"schemaType": "PROTOBUF", "schema": ""}),
        "/schemas/ids/5?format=serialized": serialized(file),
    }
    with reading(answers) as (values, _):
        assert "cannot be used" in reason(values, framed(5, b"\0"))
