"""Topics whose values mean something, as a broker's folder: JSON objects, or Avro that names its schema at a registry.

What each record means is kept beside its bytes: what a typed table must show.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import fastavro

from tests.log.batches import TIME, ZSTD, Batch, record

HOURS = 5
"""Between two batches: a topic of some days."""
DDL = (
    "id int, name string",
    "id int, name string, price double",
    "id bigint, name string, price double, tags array<string>",
)
"""Of writers, each younger than the one before."""
NOTHING_OF_JSON = (b"", b"null", b"[]", b"{", b'{"id": "x"}', b'{"id": 1} 2', b"\xff\xfe", b'{"name": 7, "id": [1]}')


@dataclass(frozen=True, slots=True)
class Meant:
    """``value``: None for a tombstone. ``poison``: the bytes are no value of any schema."""

    data: bytes | None
    value: Mapping[str, Any] | None = None
    poison: bool = False


def folder_of(path: Path, topic: Sequence[Meant], *, a_batch: int = 5, a_segment: int = 8) -> Path:
    """``a_batch`` records, ``a_segment`` batches. Every third record has headers, one name twice."""
    path.mkdir(parents=True)
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for first in range(0, len(topic), a_batch * a_segment):
        batches = []
        for base in range(first, min(first + a_batch * a_segment, len(topic)), a_batch):
            records = [
                record(
                    at,
                    b"%d" % (base + at),
                    meant.data,
                    [(b"a", b"1"), (b"b", None), (b"a", b"2")] if (base + at) % 3 == 0 else (),
                )
                for at, meant in enumerate(topic[base : base + a_batch])
            ]
            batches.append(Batch(base, records, ZSTD, time=TIME + base // a_batch * HOURS * 3_600_000).bytes)
        (path / f"{first:020d}.log").write_bytes(b"".join(batches))
    return path


def json_topic(count: int, random: Random) -> list[Meant]:
    """Objects whose writers' schemas grow as in `DDL`."""
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
    """Of the ``writer``-th schema."""
    value: dict[str, Any] = {"id": at if writer < 2 else at + 2**40, "name": random.choice(["ä", "bob", None])}
    if writer >= 1:
        value["price"] = random.choice([at / 8, None])
    if writer >= 2:
        value["tags"] = random.choice([[], None, ["x", None]])
    return value


def avro_record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


_NAME, _PRICE = ("name", ["null", "string"]), ("price", ["null", "double"])
AVRO = (
    avro_record(("id", "int"), _NAME),
    avro_record(("id", "int"), _NAME, _PRICE),
    avro_record(("id", "long"), _NAME, _PRICE, ("tags", ["null", {"type": "array", "items": ["null", "string"]}])),
)
"""Of writers, as `DDL`. The id of each at the registry is its place here, from 1 on."""


def avro_topic(count: int, random: Random) -> list[Meant]:
    """Registered; now and then cut short, with more behind it, or by an id that the registry does not have."""
    return [_registered(at, at * len(AVRO) // count, random) for at in range(count)]


def _registered(at: int, writer: int, random: Random) -> Meant:
    kind, value = random.random(), _value(at, writer, random)
    if kind < 0.1:
        return Meant(None)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(AVRO[writer]), value)
    framed = struct.pack(">bI", 0, writer + 1) + data.getvalue()
    if kind < 0.2:
        poison = (b"", framed[:5], framed + b"\0", b"\1" + framed[1:], struct.pack(">bI", 0, 99) + framed[5:])
        return Meant(random.choice(poison), poison=True)
    return Meant(framed, value)
