"""Avro values, by the schema that they were written with.

fastavro's compiled reader follows a value into any depth and ends the process where the stack does; its reader in
Python raises. It would also make a list of a billion nulls of five bytes: such schemas are refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from typing import Any

from fastavro._read_py import schemaless_reader

from ..state.errors import CorruptData
from ..values.avro_schemas import with_logical_types
from ..values.schema_registry import RegisteredSchema, SchemaRegistry
from .bounded_json import BoundedJson
from .registered_schemas import Decoder

MOST_REFERENCES = 64
"""Of a schema, with all that these refer to."""
_AROUND = "tierstate.Value"
MOST_EMPTY = 8
"""Fields of a record that take no bytes."""


def avro_decoder(registry: SchemaRegistry, id: int, schema: RegisteredSchema) -> Decoder:
    """Raises InvalidRequest for what is no schema, CorruptData, and as `SchemaRegistry.schema`."""
    named: dict[str, Any] = {}
    texts: list[str] = []

    def add(found: RegisteredSchema, what: str) -> Any:
        for reference in found.references:
            if reference.name in named:
                continue
            if len(texts) >= MOST_REFERENCES:
                raise CorruptData(f"a schema refers to more than {MOST_REFERENCES} others")
            texts.append("")  # counted before it is asked for: references may go round
            add(registry.referenced(reference), f"{reference.subject[:100]}, version {reference.version}")
        texts.append(found.text)
        try:
            return with_logical_types(found.text, what, named)
        except RecursionError as error:
            raise CorruptData(f"{what} is nested too deep") from error

    # within a record, whose bytes are the value's own: fastavro parses anew what is none, and forgets to be strict
    around = f'{{"type":"record","name":"{_AROUND}","fields":[{{"name":"value","type":{schema.text}}}]}}'
    made = add(replace(schema, text=around), f"schema {id} of the registry")
    for text in texts:
        if text:
            _refuse_nothing(json.loads(text), {})

    def write(data: bytes, into: BoundedJson) -> None:
        value: Any = schemaless_reader(BytesIO(data), made, None)
        into.write(value["value"])

    return Decoder("AVRO", sum(map(len, texts)), write)


def _refuse_nothing(schema: Any, named: dict[str, bool]) -> bool:
    """Whether a value takes a byte at least; ``named``: of the records around it and before it.

    Raises CorruptData for a list of what may take none, and a record with many such fields.
    """
    if isinstance(schema, list):
        for each in schema:
            _refuse_nothing(each, named)
        return True
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema != "null")
    kind = schema["type"]
    if kind == "record" or kind == "error":
        name = str(schema["name"]).rpartition(".")[2]
        named[name] = False  # within itself it takes what is around it
        taking = [_refuse_nothing(field["type"], named) for field in schema["fields"]]
        if len(taking) - sum(taking) > MOST_EMPTY:
            raise CorruptData("a record has many fields that take no bytes", name=name)
        named[name] = any(taking)
        return named[name]
    if kind == "array" and not _refuse_nothing(schema["items"], named):
        raise CorruptData("a list of what takes no bytes has no end")
    if kind == "map":
        _refuse_nothing(schema["values"], named)
    if kind == "fixed":
        named[str(schema["name"]).rpartition(".")[2]] = schema["size"] > 0
        return bool(schema["size"] > 0)
    return True if kind in ("array", "map", "enum") else _refuse_nothing(kind, named)
