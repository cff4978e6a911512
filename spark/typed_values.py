"""The options ``value.…``. Executors decode the column `value` by a schema, and the column `_corrupt` has the bytes
that do not parse. Exports and tables have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from ..state.errors import InvalidRequest
from ..values.form import AVRO, CORRUPT, JSON, Form
from .columns import SPARK_TYPES

if TYPE_CHECKING:
    from ..values.open import Reader
    from ..values.schema_registry import RegistryAccess

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
