"""The columns of the source: those of Spark's Kafka source, same names, types and order.

Spark refuses Arrow batches whose schema is not exactly this one (dictionary, large and view types, other timestamp
units, other orders), so `ARROW_FIELDS` is what the decoder must make, and `SPARK_TYPES` what the source declares.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..state.errors import InvalidRequest

HEADERS = "headers"
PLAIN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
ARROW_FIELDS: dict[str, pa.Field] = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "topic": pa.field("topic", pa.string()),
    "partition": pa.field("partition", pa.int32()),
    "offset": pa.field("offset", pa.int64()),
    "timestamp": pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": pa.field("timestampType", pa.int32()),
    HEADERS: pa.field(
        HEADERS,
        pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ),
}


def chosen_columns(text: str | None, include_headers: bool) -> tuple[str, ...]:
    """The option ``columns``, in its order; without it all columns, headers if asked for. Raises InvalidRequest."""
    if text is None:
        return PLAIN_COLUMNS + ((HEADERS,) if include_headers else ())
    names = {name.lower(): name for name in SPARK_TYPES}
    chosen = []
    for part in text.split(","):
        name = names.get(part.strip().lower())
        if name is None:
            raise InvalidRequest(
                "option columns: no such column", column=repr(part.strip()), columns=",".join(SPARK_TYPES)
            )
        if name in chosen:
            raise InvalidRequest("option columns: a column is named twice", column=name)
        chosen.append(name)
    return tuple(chosen)


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """Every column is nullable, as in Spark's Kafka source."""
    return StructType([StructField(name, SPARK_TYPES[name]) for name in columns])


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([ARROW_FIELDS[name] for name in columns])
