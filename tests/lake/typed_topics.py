"""Topics whose values mean something: JSON objects, or Avro that names its schema at a registry; writers' schemas
grow.\n\nThe meaning of each record is kept with its bytes: a typed table must show it.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import fastavro

DDL = (
    "id int, name string, few tinyint",
    "id int, name string, few smallint",
    "id int, name string, few int",
    "id int, name string, few int, price double",
    "id bigint, name string, few int, price double, tags array<string>",
)
"""Schemas of writers, oldest first. For Iceberg, which has no smaller integer, the first three are the same."""
NOTHING_OF_JSON = (b"", b"null", b"[]", b"{", b'{"id": "x"}', b'{"id": 1} 2', b"\xff\xfe", b'{"name": 7, "id": [1]}')


@dataclass(frozen=True, slots=True)
class Meant:
    """``value`` is None for a tombstone. ``poison``: the bytes are no value of any schema."""

    data: bytes | None
    value: Mapping[str, Any] | None = None
    poison: bool = False


def json_topic(count: int, random: Random) -> list[Meant]:
    """Return objects whose writers' schemas grow as in `DDL`."""
    return [_json(at, at * len(DDL) // count, random) for at in range(count)]


def _json(at: int, writer: int, random: Random) -> Meant:
    kind = random.random()
    if kind < 0.1:
        return Meant(random.choice(NOTHING_OF_JSON), poison=True)
    if kind < 0.2:
        return Meant(None)
    value = _value(at, writer, random)
    return Meant(json.dumps(value).encode(), value)


def _value(at: int, writer: int, random: Random) -> dict[str, Any]:
    """Return a value of the ``writer``-th schema."""
    value: dict[str, Any] = {"id": at, "name": random.choice(["ä", "bob", None]), "few": 100}
    if writer >= 1:
        value["few"] = random.choice([1, 300, 70_000])
    if writer >= 3:
        value["price"] = random.choice([at / 8, None])
    if writer >= 4:
        value |= {"id": at + 2**40, "tags": random.choice([[], None, ["x", None]])}
    return value


def avro_record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


_NAME, _FEW, _PRICE = ("name", ["null", "string"]), ("few", "int"), ("price", ["null", "double"])
_TAGS = ("tags", ["null", {"type": "array", "items": ["null", "string"]}])
AVRO = (
    avro_record(("id", "int"), _NAME, _FEW),
    avro_record(("id", "int"), _NAME, _FEW, _PRICE),
    avro_record(("id", "long"), _NAME, _FEW, _PRICE, _TAGS),
)
"""Schemas of writers, as `DDL`. The id of each at the registry is its place here, from 1 on."""


def avro_topic(count: int, random: Random) -> list[Meant]:
    """Return registered values; some are cut short, have more behind them, or have an id that the registry lacks."""
    return [_registered(at, at * len(AVRO) // count, random) for at in range(count)]


def _registered(at: int, writer: int, random: Random) -> Meant:
    kind, value = random.random(), _value(at, (0, 3, 4)[writer], random)
    if kind < 0.1:
        return Meant(None)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(AVRO[writer]), value)
    framed = struct.pack(">bI", 0, writer + 1) + data.getvalue()
    if kind < 0.2:
        poison = (b"", framed[:5], framed + b"\0", b"\1" + framed[1:], struct.pack(">bI", 0, 99) + framed[5:])
        return Meant(random.choice(poison), poison=True)
    return Meant(framed, value)
