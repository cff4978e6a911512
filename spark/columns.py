"""The columns of the source: those of Spark's Kafka source, same names, types and order.

Spark refuses Arrow batches whose schema is not exactly the declared one; `log.decode.record_schema` is that schema.
"""

from __future__ import annotations

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
