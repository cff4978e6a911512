"""Values that a schema registry describes, and the answers of that registry."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tests.servers.schema_registry import Answer, Registry, registry
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.gateway_settings import Registry as Settings
from tierstate.values.registered_values import RegisteredValues, open_registered_values

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
    ],
}


def framed(id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, id) + data


def avro(id: int, schema: Any, value: Any) -> bytes:
    into = BytesIO()
    schemaless_writer(into, parse_schema(schema), value)
    return framed(id, into.getvalue())


def of_avro(schema: Any, **more: Any) -> Answer:
    return 200, {"schema": json.dumps(schema), **more}


@contextmanager
def reading(
    answers: Mapping[int | str, Answer], clock: ManualClock | None = None, **settings: Any
) -> Iterator[tuple[RegisteredValues, Registry]]:
    with registry(answers) as server:
        patient = {"timeout": 60.0, **settings}  # the default is too short for a busy machine
        values = open_registered_values(Settings(url=server.url, **patient), clock or ManualClock())
        assert values is not None
        yield values, server


def shown(values: RegisteredValues, data: bytes | None) -> Any:
    text = values.of_answer().json(data)
    assert b"\n" not in text
    return json.loads(text)


def reason(values: RegisteredValues, data: bytes) -> str:
    said = shown(values, data)
    assert "value" not in said
    return str(said["reason"])
