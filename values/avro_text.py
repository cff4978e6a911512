"""Decode Avro values to JSON text by the writer schema.

fastavro's compiled reader follows a value to any depth, and a stack overflow ends the process; its Python reader raises
an error instead. Either would make a list of a billion nulls from five bytes: schemas that allow this are refused.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from fastavro._read_py import schemaless_reader

from ..state.errors import CorruptData
from .avro_bounds import refuse_nothing
from .avro_schemas import with_logical_types
from .bounded_json import BoundedJson
from .registered_schemas import Decoder
from .schema_registry import RegisteredSchema, SchemaRegistry

_AROUND = "tierstate.Value"


def avro_decoder(registry: SchemaRegistry, id: int, schema: RegisteredSchema) -> Decoder:
    """Return a decoder. Raises InvalidRequest, CorruptData for an unusable schema, and as `SchemaRegistry.schema`."""
    names: dict[str, Any] = {}
    texts = registry.whole(schema)
    # wrapped in a record, which adds no bytes: fastavro parses other types a second time, and then not strictly
    texts[-1] = f'{{"type":"record","name":"{_AROUND}","fields":[{{"name":"value","type":{schema.text}}}]}}'
    what = f"schema {id} of the registry"
    for text in texts:
        try:
            parsed = with_logical_types(text, what, names)
        except RecursionError as error:
            raise CorruptData(f"{what} is nested too deep") from error
        refuse_nothing(json.loads(text), {})

    def write(data: bytes, into: BoundedJson) -> None:
        value: Any = schemaless_reader(BytesIO(data), parsed, None)
        into.write(value["value"])

    return Decoder("AVRO", sum(map(len, texts)), write)
