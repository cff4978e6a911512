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
_WIDENED = ({"int", "long"}, "long"), ({"float", "double"}, "double")
MAX_DIGITS = 38
Shaped = Callable[[Any], Any]


def type_of_avro(text: str, what: str) -> pa.DataType:
    """Return the Arrow type. Raises InvalidRequest, naming the schema as ``what``, for a type that is not supported."""
    parsed(text, what)
    try:
        return type_of_tree(of_json(text, what, expand_schema), what)
    except RecursionError as error:
        raise InvalidRequest(f"{what}: a record is within itself") from error


def type_of_tree(schema: Any, what: str) -> pa.DataType:
    """Return the Arrow type of a schema in which names are replaced by their types. Raises as `type_of_avro`."""
    return kept(what, _type(schema, what))


def kept(what: str, kind: pa.DataType) -> pa.DataType:
    """Return ``kind``. Raises InvalidRequest if Parquet has no such column."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        raise InvalidRequest(f"{what}: a struct without fields is no column")
    for at in range(kind.num_fields):
        kept(what, kind.field(at).type)
    return kind


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
    if _is_decimal(schema):
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
    kinds = members_of(members)
    if len(kinds) == 1:
        return _type(kinds[0], what)
    return pa.struct([pa.field(f"member{at}", _type(each, what)) for at, each in enumerate(kinds)])


def members_of(union: list[Any]) -> list[Any]:
    """Return the types of a union without null. Several types that are one column become one type, as for Spark."""
    kinds = [each for each in union if each != "null" and each != {"type": "null"}]
    names = [each if isinstance(each, str) else each["type"] for each in kinds]
    for narrow, wide in _WIDENED:
        if len(names) == 2 and set(map(str, names)) == narrow:
            return [wide if isinstance(kinds[0], str) else {"type": wide}]
    return kinds


def _shape(schema: Any) -> Shaped | None:
    """Return a function that converts a schema's values, or None if no value needs a conversion."""
    if isinstance(schema, list):
        kinds = members_of(schema)
        shape = _shape(kinds[0]) if kinds else None  # of several types, only a default is shaped: it has the first one
        return shape and (lambda value: None if value is None else shape(value))
    if isinstance(schema, str):
        return None
    if not isinstance(schema["type"], str):
        return _shape(schema["type"])
    name, logical = schema["type"], schema.get("logicalType")
    if name == "long" and logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda value: value * 1000
    if _is_decimal(schema):
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


def _is_decimal(schema: Any) -> bool:
    """Return whether a column can have these decimals. More digits are bytes, as if the type were unknown."""
    if isinstance(schema, str) or schema.get("logicalType") != "decimal" or schema["type"] not in ("bytes", "fixed"):
        return False
    return bool(0 < schema.get("precision", 0) <= MAX_DIGITS)


def _decimals(scale: int) -> Shaped:
    exact = Context(prec=MAX_DIGITS + 1)

    def decimal(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not value or number.bit_length() > 128:
            raise ValueError(f"no decimal: {len(value)} bytes")
        return Decimal(number).scaleb(-scale, exact)

    return decimal
