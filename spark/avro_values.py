"""Avro values to one Arrow array of structs, by fastavro, row by row.

With a registry each value says which schema it was written with, and is resolved to ours; without one it was written
with ours. Bytes behind a value are ignored, as `from_avro` ignores them.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from ..app.avro_schemas import parsed
from ..app.schema_registry import FRAME, MAGIC, SchemaRegistry, apart
from ..runtime.clock import SystemClock
from ..state.errors import CorruptData
from .avro_schema import shaping
from .typed_values import RowRefused

RETRIES = 3


class AvroValues:
    """For one schema. ``registry``: its URL, None: values are bare."""

    def __init__(self, text: str, kind: T.StructType, registry: str | None) -> None:
        self._schema = parsed(text, "the reader's schema")
        self._shape, self._type = shaping(text), to_arrow_type(kind, timezone="UTC")
        self._registry = registry

    def of(self, values: pa.Array) -> pa.Array:
        """Raises RowRefused for bytes that are no such value, and what `SchemaRegistry.schema` raises."""
        rows = [self._row(row, value) for row, value in enumerate(values.to_pylist())]
        try:
            return pa.array(rows, self._type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            for row, made in enumerate(rows):
                self._checked(row, made)
            raise

    def _row(self, row: int, value: bytes | None) -> Any:
        if value is None:
            return None
        writer, reader, start = self._schema, None, 0
        if self._registry is not None:
            writer, reader, start = self._written(row, value, self._registry), self._schema, FRAME.size
        try:
            return self._shape(schemaless_reader(BytesIO(value[start:]), writer, reader))
        except Exception as error:  # fastavro raises whatever it meets in damaged bytes
            reason = f"a value is not of the schema: {type(error).__name__}: {error}"
            raise RowRefused(row, CorruptData, reason) from error

    def _written(self, row: int, value: bytes, registry: str) -> Any:
        """The schema it was written with."""
        if len(value) < FRAME.size or value[0] != MAGIC:
            reason = f"a value does not begin with 0 and the id of a schema, but with {value[: FRAME.size].hex()}"
            raise RowRefused(row, CorruptData, reason)
        try:
            return _writer(registry, FRAME.unpack_from(value)[1])
        except CorruptData as error:
            raise RowRefused(row, CorruptData, str(error)) from error

    def _checked(self, row: int, made: Any) -> None:
        try:
            pa.array([made], self._type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise RowRefused(row, CorruptData, f"a value is not of the schema: {error}") from error


@lru_cache(maxsize=1024)
def _writer(url: str, id: int) -> Any:
    """Kept for the process: an id never means another schema."""
    bare, basic = apart(url)
    registry = SchemaRegistry(bare, SystemClock(), basic=basic, retries=RETRIES)
    found = registry.schema(id)
    if found.kind != "AVRO" or found.references:
        raise CorruptData("this schema is not Avro's alone", type=found.kind, references=len(found.references))
    return parsed(found.text, f"schema {id} of the registry")
