"""Values that name their schema at a registry, as JSON for people: Avro, JSON Schema, Protobuf.

    0, four bytes of an id, the value   ->   {"schemaId": 7, "schemaType": "AVRO", "value": …}
    anything else                       ->   {"reason": "…"}

Whatever is wrong with a value, its schema or the registry is a reason next to the bytes, never an error of the answer.
Everything is bounded: how long an answer waits for all its schemas together, how large a value may be, how much JSON
an answer may become (a few bytes can be much JSON: names come from the schema).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson

from ..runtime.clock import Clock
from ..runtime.registry_settings import Registry
from ..state.errors import CorruptData, MissingExtra, TierstateError
from .avro_text import avro_decoder
from .bounded_json import BoundedJson, TooMuchJson
from .protobuf_text import protobuf_decoder
from .registered_schemas import Decoder, RegisteredSchemas
from .registry_access import registry_access
from .schema_registry import FRAME, MAGIC, RegisteredSchema, SchemaRegistry

MOST_VALUE = 256 * 1024
"""The longest value that is decoded, in bytes."""
MOST_JSON = 8 * 1024 * 1024
"""The most JSON of one answer's decoded values, in bytes."""
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class RegisteredValues:
    """The values that one registry has the schemas of. Thread-safe."""

    def __init__(self, schemas: RegisteredSchemas, clock: Clock, timeout_s: float) -> None:
        """``timeout_s``: seconds that one answer waits for schemas."""
        self._schemas, self._clock, self._timeout_s = schemas, clock, timeout_s

    def of_answer(self) -> AnswerValues:
        """Return the values for one answer, which begins now."""
        return AnswerValues(self._schemas, self._clock.monotonic() + self._timeout_s)


class AnswerValues:
    """The values of one answer. One thread at a time uses it."""

    most = MOST_JSON

    def __init__(self, schemas: RegisteredSchemas, until: float) -> None:
        self._schemas, self._until, self._left = schemas, until, MOST_JSON

    def json(self, data: bytes | None) -> bytes:
        """Return one line of JSON; null for None."""
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
        except Exception as error:  # whatever a library meets in damaged bytes
            why = f"{type(error).__name__}: {str(error)[:200]}".removesuffix(": ")
            return _reason(head, f"it is not of its schema: {why}")
        value = into.bytes()
        self._left -= len(value)
        return orjson.dumps(head)[:-1] + b',"value":' + value + b"}"


def _reason(head: dict[str, object], why: str) -> bytes:
    return orjson.dumps({**head, "reason": why})


def open_registered_values(settings: Registry, clock: Clock) -> RegisteredValues | None:
    """Return the values, or None where no registry is set. Raises MissingExtra where packages are not installed."""
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
    """Return a decoder. Raises as `SchemaRegistry.schema`; InvalidRequest, CorruptData for an unusable schema."""
    makers: dict[str, Callable[[], Decoder]] = {
        "AVRO": lambda: avro_decoder(registry, id, schema),
        "JSON": lambda: Decoder("JSON", len(schema.text), _json),
        "PROTOBUF": lambda: protobuf_decoder(registry, id),
    }
    if schema.kind not in makers:
        raise CorruptData(f"schemas of the type {schema.kind[:40]} are not read here")
    return makers[schema.kind]()


def _json(data: bytes, into: BoundedJson) -> None:
    """Write it unchanged, with every digit, on one line: no string contains a line end."""
    orjson.loads(data)
    into.put(data.translate(_LINE_ENDS).decode())
