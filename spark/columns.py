"""The columns of the source. Their names, types and order are those of Spark's Kafka source.

Spark refuses Arrow batches whose schema is not exactly the declared one; `log.decode.record_schema` is that schema.
With the options ``value.…``, executors decode the column `value` by a schema, and the column `_corrupt` has the bytes
that do not parse. Exports and tables have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from ..log.record_columns import record_schema
from ..state.errors import InvalidRequest
from ..values.form import AVRO, CORRUPT, JSON, Form

if TYPE_CHECKING:
    from ..values.open import Reader
    from ..values.schema_registry import RegistryAccess

HEADERS = "headers"
SPARK_TYPES: dict[str, DataType] = {each.name: from_arrow_type(each.type) for each in record_schema()}
PLAIN_COLUMNS = tuple(name for name in SPARK_TYPES if name != HEADERS)


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
    for column in schema.fields:
        expected = types.get(column.name)
        if expected is None:
            raise InvalidRequest(
                ".schema(…): no such column; names are as they are written here",
                column=repr(column.name),
                columns=",".join(types),
            )
        if column.dataType != expected:
            raise InvalidRequest(
                ".schema(…): this column has another type; cast it afterwards",
                column=column.name,
                type=expected.simpleString(),
                got=column.dataType.simpleString(),
            )
        if not column.nullable:
            raise InvalidRequest(".schema(…): every column may be null, NOT NULL is not kept", column=column.name)
    names = tuple(column.name for column in schema.fields)
    if not names:
        raise InvalidRequest(".schema(…) names no column")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(".schema(…): a column is named twice", column=name)
    if chosen is not None and names != chosen_columns(chosen, False, types):
        raise InvalidRequest(".schema(…) and the option columns disagree", schema=",".join(names), columns=chosen)
    return names


FORMAT, SCHEMA, REGISTRY = "value.format", "value.schema", "value.registry.url"
VALUE = "value"


@dataclass(frozen=True, slots=True)
class TypedValue:
    """The form of the values, and the schema registry if the form needs one."""

    form: Form
    registry: RegistryAccess | None = field(default=None, repr=False)


def typed_value(options: Mapping[str, str]) -> TypedValue | None:
    """Return the form of the values, or None if they remain bytes. Raises InvalidRequest that names the option."""
    format = options[FORMAT].strip().lower()
    schema, url = options.get(SCHEMA, ""), options.get(REGISTRY, "").strip()
    if format not in ("binary", JSON, AVRO):
        raise InvalidRequest(f"option {FORMAT} is binary, json or avro", got=repr(options[FORMAT]))
    if url and format != AVRO:
        raise InvalidRequest(f"option {REGISTRY} needs {FORMAT}=avro")
    if format == "binary":
        if schema.strip():
            raise InvalidRequest(f"option {SCHEMA} needs {FORMAT}=json or avro")
        return None
    if not schema.strip():
        example = "id bigint, tags array<string>" if format == JSON else "the Avro schema as JSON"
        raise InvalidRequest(f"option {FORMAT}={format} needs {SCHEMA}: {example}")
    form = Form(format, schema, registered=bool(url))
    form.kind(f"option {SCHEMA}")
    return TypedValue(form, _registry(url) if url else None)


def _registry(url: str) -> RegistryAccess:
    from ..values.schema_registry import access_by_url, is_url  # most sessions need neither

    if not is_url(url):
        raise InvalidRequest(f"option {REGISTRY} is a URL like https://registry:8081")
    return access_by_url(url)


def column_types(typed: TypedValue | None) -> dict[str, DataType]:
    """Return the types of all columns that a query may have."""
    if typed is None:
        return SPARK_TYPES
    from ..values.typed_column import CORRUPT_TYPE

    return SPARK_TYPES | {VALUE: from_arrow_type(typed.form.kind()), CORRUPT: from_arrow_type(CORRUPT_TYPE)}


class TypedColumns:
    """The columns of one task's batches. `value` is typed if the options set a format."""

    def __init__(self, columns: Sequence[str], typed: TypedValue | None) -> None:
        self._columns = tuple(columns)
        self._values: Reader | None = None
        self.decoded = self._columns
        """The columns to decode from records. `value` is among them as bytes if it will be typed."""
        if typed is not None and not {VALUE, CORRUPT}.isdisjoint(columns):
            from ..values.open import open_reader

            self._values = open_reader(typed.form, typed.registry)
            self.decoded = (*(name for name in columns if name not in (VALUE, CORRUPT)), VALUE)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its columns typed. Raises Unavailable and AccessDenied for a registry."""
        if self._values is None:
            return batch
        from ..values.typed_column import corrupt_column

        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        raw = arrays[VALUE]
        typed = self._values.of(raw)
        arrays |= {VALUE: typed.column, CORRUPT: corrupt_column({VALUE: raw}, {VALUE: typed.corrupt})}
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], names=list(self._columns))
