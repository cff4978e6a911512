"""Converts columns in Arrow's types to an Iceberg schema, with ids that are assigned here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pyarrow.types as kinds
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from ..state.errors import InvalidRequest


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return a schema, all optional but keys of maps. Raises InvalidRequest for types that Iceberg cannot hold."""
    fields = _fields(columns, count(1), "")
    try:
        return Schema(*fields)
    except ValueError as error:  # Iceberg joins the names of nested fields by dots
        raise InvalidRequest("two fields of a table would have one name", reason=str(error)) from error


def _fields(fields: pa.Schema | pa.StructType, ids: Iterator[int], path: str) -> list[NestedField]:
    if not len(fields):
        raise InvalidRequest("a record without fields cannot be a column", column=path)
    return [NestedField(next(ids), each.name, _type(each.type, ids, f"{path}.{each.name}")) for each in fields]


def _type(kind: pa.DataType, ids: Iterator[int], path: str) -> IcebergType:
    if kinds.is_struct(kind):
        return StructType(*_fields(kind, ids, path))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return ListType(next(ids), _type(kind.value_type, ids, f"{path}.element"), False)
    if kinds.is_map(kind):
        key = _type(kind.key_type, ids, f"{path}.key")
        return MapType(next(ids), key, next(ids), _type(kind.item_type, ids, f"{path}.value"), False)
    if kinds.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if kinds.is_timestamp(kind) and kind.unit == "us":
        return TimestampType() if kind.tz is None else TimestamptzType()
    for arrow_types, iceberg_type in PRIMITIVES.items():
        if kind in arrow_types:
            return iceberg_type
    raise InvalidRequest("an Iceberg table cannot hold this type", column=path.lstrip("."), type=str(kind))


PRIMITIVES = {
    (pa.bool_(),): BooleanType(),
    (pa.int8(), pa.int16(), pa.int32()): IntegerType(),
    (pa.int64(),): LongType(),
    (pa.float32(),): FloatType(),
    (pa.float64(),): DoubleType(),
    (pa.string(), pa.large_string()): StringType(),
    (pa.binary(), pa.large_binary()): BinaryType(),
    (pa.date32(),): DateType(),
}
