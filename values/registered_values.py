"""Show values that name their schema in a registry as JSON: Avro, JSON Schema, Protobuf.

    0, four bytes of an id, the value   ->   {"schemaId": 7, "schemaType": "AVRO", "value": …}
    anything else                       ->   {"reason": "…"}

A problem with a value, its schema or the registry becomes a reason next to the bytes, never an error of the answer.
Limits apply to the time that an answer waits for all its schemas, to the size of a value, and to the JSON of an answer.
A few bytes can become much JSON, because names come from the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import orjson
from fastavro._read_py import schemaless_reader

from ..runtime.clock import Clock
from ..runtime.gateway_settings import Registry
from ..state.errors import CorruptData, MissingExtra, TierstateError
from .avro_schemas import refuse_nothing, with_logical_types
from .bounded_json import BoundedJson, TooMuchJson
from .protobuf_text import protobuf_decoder
from .registered_schemas import Decoder, RegisteredSchemas
from .schema_registry import FRAME, MAGIC, RegisteredSchema, SchemaRegistry, registry_access

_AROUND = "tierstate.Value"


def avro_decoder(registry: SchemaRegistry, id: int, schema: RegisteredSchema) -> Decoder:
    """Return a decoder. Raises InvalidRequest, CorruptData for an unusable schema, and as `SchemaRegistry.schema`.

    fastavro's compiled reader follows a value to any depth, and a stack overflow ends the process; its Python reader
    raises an error instead. Either would make a list of a billion nulls from five bytes: such schemas are refused.
    """
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


MOST_VALUE = 256 * 1024
"""The longest value that is decoded, in bytes."""
MOST_JSON = 8 * 1024 * 1024
"""The most JSON of one answer's decoded values, in bytes."""
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class RegisteredValues:
    """Decodes the values whose schemas are in one registry. Thread-safe."""

    def __init__(self, schemas: RegisteredSchemas, clock: Clock, timeout_s: float) -> None:
        """``timeout_s``: seconds that one answer waits for schemas."""
        self._schemas, self._clock, self._timeout_s = schemas, clock, timeout_s

    def of_answer(self) -> AnswerValues:
        """Return the decoder of one answer's values. Its time limit begins now."""
        return AnswerValues(self._schemas, self._clock.monotonic() + self._timeout_s)


class AnswerValues:
    """Decodes the values of one answer, within its limits. Not thread-safe."""

    most = MOST_JSON

    def __init__(self, schemas: RegisteredSchemas, until: float) -> None:
        self._schemas, self._until, self._left = schemas, until, MOST_JSON

    def json(self, data: bytes | None) -> bytes:
        """Return the value as one line of JSON, which is ``null`` for None."""
        if data is None:
            return b"null"
        if len(data) < FRAME.size or data[0] != MAGIC:
            return _reason({}, "it does not begin with 0 and the id of a schema")
        head: dict[str, object] = {"schemaId": FRAME.unpack_from(data)[1]}
        if len(data) > MOST_VALUE:
            return _reason(head, f"a value of more than {MOST_VALUE} bytes is not decoded")
        try:
            decoder = self._schemas.decoder(FRAME.unpack_from(data)[1], self._until)
            head["schemaType"] = decoder.kind
            into = BoundedJson(self._left)
            decoder.write(data[FRAME.size :], into)
        except TooMuchJson:
            return _reason(head, f"all JSON of one answer would be more than {MOST_JSON} bytes: ask for fewer records")
        except TierstateError as error:
            return _reason(head, error.message)
        except Exception as error:  # a library may raise any error for damaged bytes
            why = f"{type(error).__name__}: {str(error)[:200]}".removesuffix(": ")
            return _reason(head, f"it is not of its schema: {why}")
        value = into.bytes()
        self._left -= len(value)
        return orjson.dumps(head)[:-1] + b',"value":' + value + b"}"


def _reason(head: dict[str, object], why: str) -> bytes:
    return orjson.dumps({**head, "reason": why})


def open_registered_values(settings: Registry, clock: Clock) -> RegisteredValues | None:
    """Return the values' decoder, or None if no registry is set. Raises MissingExtra if packages are not installed."""
    access = registry_access(settings)
    if access is None:
        return None
    try:
        import google.protobuf.descriptor_pool  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("registry", "a schema registry") from error
    registry = SchemaRegistry(access, clock)
    schemas = RegisteredSchemas(registry.schema, partial(decoder_of, registry), clock, settings.cache)
    return RegisteredValues(schemas, clock, settings.timeout)


def decoder_of(registry: SchemaRegistry, id: int, schema: RegisteredSchema) -> Decoder:
    """Return a decoder. Raises InvalidRequest or CorruptData for an unusable schema, and as `SchemaRegistry.schema`."""
    makers: dict[str, Callable[[], Decoder]] = {
        "AVRO": lambda: avro_decoder(registry, id, schema),
        "JSON": lambda: Decoder("JSON", len(schema.text), _json),
        "PROTOBUF": lambda: protobuf_decoder(registry, id),
    }
    if schema.kind not in makers:
        raise CorruptData(f"schemas of the type {schema.kind[:40]} are not read here")
    return makers[schema.kind]()


def _json(data: bytes, into: BoundedJson) -> None:
    """Write JSON unchanged, with every digit, but on one line: no string contains a line end."""
    orjson.loads(data)
    into.put(data.translate(_LINE_ENDS).decode())
