"""Convert an Avro schema to the type of a column as Spark's `from_avro` does, except that every field may be null."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from fastavro.schema import expand_schema

from ..state.errors import InvalidRequest
from .avro_schemas import of_json, parsed
from .ddl import list_of, map_of

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[tuple[str, Any], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_WIDENED = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())
MAX_DIGITS = 38
Shaped = Callable[[Any], Any]


def type_of_avro(text: str, what: str) -> pa.DataType:
    """Return the Arrow type. Raises InvalidRequest, naming the schema as ``what``, for a type that is not supported."""
    parsed(text, what)
    try:
        return _type(of_json(text, what, expand_schema), what)
    except RecursionError as error:
        raise InvalidRequest(f"{what}: a record is within itself") from error


def shaping(text: str) -> Shaped:
    """Return a function that converts fastavro's values for Arrow: pairs for a map, microseconds, decimals."""
    return _shape(expand_schema(json.loads(text))) or (lambda value: value)


def _type(schema: Any, what: str) -> pa.DataType:
    if isinstance(schema, list):
        return _union(schema, what)
    name = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(name, str):
        return _type(name, what)
    logical = None if isinstance(schema, str) else schema.get("logicalType")
    if logical == "decimal" and name in ("bytes", "fixed"):
        if not 0 < schema.get("precision", 0) <= MAX_DIGITS:
            raise InvalidRequest(f"{what}: a decimal has 1 to {MAX_DIGITS} digits", got=schema.get("precision"))
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if (kind := _LOGICAL.get((name, logical))) is not None:
        return kind  # any other logical type is read as its base type, as Avro's specification says
    match name:
        case "record":
            names = [field["name"] for field in schema["fields"]]
            if len({name.lower() for name in names}) < len(names):
                raise InvalidRequest(f"{what}: a field is named twice", fields=",".join(names))
            return pa.struct([pa.field(field["name"], _type(field["type"], what)) for field in schema["fields"]])
        case "array":
            return list_of(_type(schema["items"], what))
        case "map":
            return map_of(_type(schema["values"], what))
    if name not in _SIMPLE:  # the name of an enclosing record, or null alone
        raise InvalidRequest(f"{what}: no type that can be read here", type=name)
    return _SIMPLE[name]


def _union(members: list[Any], what: str) -> pa.DataType:
    others = [each for each in members if each != "null" and each != {"type": "null"}]
    if len(others) == 1:
        return _type(others[0], what)
    names = {each if isinstance(each, str) else str(each.get("logicalType") or each["type"]) for each in others}
    for narrow, wide in _WIDENED:
        if names == narrow:
            return wide
    raise InvalidRequest(f"{what}: a union of more than null and one type", types=",".join(sorted(names)))


def _shape(schema: Any) -> Shaped | None:
    """Return a function that converts a schema's values, or None if no value needs a conversion."""
    if isinstance(schema, list):
        inner = [each for each in (_shape(member) for member in schema if member != "null") if each is not None]
        shape = inner[0] if inner else None
        return shape and (lambda value: None if value is None else shape(value))
    if isinstance(schema, str):
        return None
    if not isinstance(schema["type"], str):
        return _shape(schema["type"])
    name, logical = schema["type"], schema.get("logicalType")
    if name == "long" and logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda value: value * 1000
    if name in ("bytes", "fixed") and logical == "decimal":
        return _decimals(schema.get("scale", 0))
    match schema["type"]:
        case "record":
            fields = [(field["name"], shape) for field in schema["fields"] if (shape := _shape(field["type"]))]
            return (lambda value: value | {name: shape(value[name]) for name, shape in fields}) if fields else None
        case "array":
            element = _shape(schema["items"])
            return element and (lambda value: [element(each) for each in value])
        case "map":
            of_value = _shape(schema["values"]) or (lambda value: value)
            return lambda value: [(key, of_value(each)) for key, each in value.items()]
    return None


def _decimals(scale: int) -> Shaped:
    exact = Context(prec=MAX_DIGITS + 1)

    def decimal(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not value or number.bit_length() > 128:
            raise ValueError(f"no decimal: {len(value)} bytes")
        return Decimal(number).scaleb(-scale, exact)

    return decimal
