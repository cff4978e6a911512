"""Avro records: their schemas as text, and their bytes, bare or with the id of a schema."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

from fastavro import parse_schema, schemaless_writer


def record(*fields: tuple[Any, ...], name: str = "Order") -> str:
    """Return a record schema of names and types, and defaults where there is a third item."""
    made = [{"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def written(schema: str, value: Any, id: int | None = None) -> bytes:
    data = io.BytesIO()
    schemaless_writer(data, parse_schema(json.loads(schema)), value)
    return data.getvalue() if id is None else struct.pack(">bI", 0, id) + data.getvalue()
