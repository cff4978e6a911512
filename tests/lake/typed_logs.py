"""Partition folders whose keys and values mean something: JSON, Avro, and bytes that only look like it."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro

from tests.log.batches import TIME, ZSTD, Batch, record

Pair = tuple[bytes | None, bytes | None]
DDL = (
    "id bigint, name string, price decimal(10,2), at timestamp, tags array<string>, place struct<x: double, y: double>"
)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
POISON = (
    b"",
    b"{",
    b"null",
    b"[1]",
    b'{"id": "seven"}',
    b'{"id": 1} trailing',
    b'{"id": 1}{"id": 2}',
    b"\xff\xfe",
    b"\0\0\0\0\x63",
)


def an_order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number % 7 == 0 else f"name-{number % 50}",
        "price": f"{number % 900}.25",
        "at": f"2026-01-01T00:00:{number % 60:02d}Z",
        "tags": ["a", "b"][: number % 3],
        "place": {"x": number / 4, "y": -1.5},
    }


def json_order(number: int) -> bytes:
    """Return an order as JSON, now and then with a field that no schema has."""
    order = an_order(number)
    order["price"] = float(order["price"])
    return json.dumps({**order, "more": [number]} if number % 5 == 0 else order).encode()


def avro_order(number: int, schema: str = AVRO, id: int | None = None) -> bytes:
    """``id`` is that of a schema in a registry; the value begins with it."""
    out = io.BytesIO(b"" if id is None else struct.pack(">bI", 0, id))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), an_order(number))
    return out.getvalue()


def avro_long(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    return out.getvalue()


def poisoned(values: Sequence[bytes], every: int = 10) -> list[bytes | None]:
    """Replace each ``every``-th value by one of `POISON`, and each value after it by null."""
    made: list[bytes | None] = list(values)
    for turn, at in enumerate(range(0, len(values) - 1, every)):
        made[at], made[at + 1] = POISON[turn % len(POISON)], None
    return made


def folder_of(
    path: Path,
    records: Sequence[Pair],
    a_batch: int = 50,
    a_segment: int = 200,
    apart_ms: int = 60_000,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
) -> Path:
    """Write a folder as a broker leaves it. Each third record has headers with one key twice. ``epochs``: with starts,
    which begin batches.
    """
    path.mkdir(parents=True)
    lines = [f"{epoch} {start}\n" for epoch, start in epochs]
    (path / "leader-epoch-checkpoint").write_text("".join(["0\n", f"{len(epochs)}\n", *lines]))
    for base in range(0, len(records), a_segment):
        data = b""
        for first in range(base, min(base + a_segment, len(records)), a_batch):
            made = [
                record(at, key, value, _headers(first + at), at * apart_ms)
                for at, (key, value) in enumerate(records[first : first + a_batch])
            ]
            time, last = TIME + first * apart_ms, TIME + (first + len(made) - 1) * apart_ms
            epoch = max(epoch for epoch, start in epochs if start <= first)
            data += Batch(first, made, ZSTD, time=time, max_time=last, epoch=epoch).bytes
        (path / f"{base:020d}.log").write_bytes(data)
    return path


def _headers(offset: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"trace", b"%d" % offset), (b"hop", b"1"), (b"trace", None)] if offset % 3 == 0 else []
