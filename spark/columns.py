"""The columns of the source. Their names, types and order are those of Spark's Kafka source.

Spark refuses Arrow batches whose schema is not exactly the declared one; `log.decode.record_schema` is that schema.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def chosen_columns(
    text: str | None, include_headers: bool, types: Mapping[str, DataType] = SPARK_TYPES
) -> tuple[str, ...]:
    """Return the columns of the option ``columns`` (``text``), in its order. If it is None, return all columns,
    ``headers`` only with ``include_headers``. Raises InvalidRequest for a wrong option.
    """
    if text is None:
        more = tuple(types.keys() - SPARK_TYPES.keys())
        return PLAIN_COLUMNS + ((HEADERS,) if include_headers else ()) + more
    names = {name.lower(): name for name in types}
    chosen = []
    for part in text.split(","):
        name = names.get(part.strip().lower())
        if name is None:
            raise InvalidRequest("option columns: no such column", column=repr(part.strip()), columns=",".join(types))
        if name in chosen:
            raise InvalidRequest("option columns: a column is named twice", column=name)
        chosen.append(name)
    return tuple(chosen)


def spark_schema(columns: tuple[str, ...], types: Mapping[str, DataType] = SPARK_TYPES) -> StructType:
    """Return the schema. Columns are nullable, as in Spark's Kafka source."""
    return StructType([StructField(name, types[name]) for name in columns])


def declared_columns(
    schema: StructType, chosen: str | None, types: Mapping[str, DataType] = SPARK_TYPES
) -> tuple[str, ...]:
    """Return the columns of ``schema``, in its order. ``chosen``: the option ``columns``.

    Without ``.schema(…)`` Spark passes the schema of `spark_schema`. Raises InvalidRequest that names the column.
    """
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            raise InvalidRequest(
                ".schema(…): no such column; names are as they are written here",
                column=repr(field.name),
                columns=",".join(types),
            )
        if field.dataType != expected:
            raise InvalidRequest(
                ".schema(…): this column has another type; cast it afterwards",
                column=field.name,
                type=expected.simpleString(),
                got=field.dataType.simpleString(),
            )
        if not field.nullable:
            raise InvalidRequest(".schema(…): every column may be null, NOT NULL is not kept", column=field.name)
    names = tuple(field.name for field in schema.fields)
    if not names:
        raise InvalidRequest(".schema(…) names no column")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(".schema(…): a column is named twice", column=name)
    if chosen is not None and names != chosen_columns(chosen, False, types):
        raise InvalidRequest(".schema(…) and the option columns disagree", schema=",".join(names), columns=chosen)
    return names
