"""Avro values to one Arrow array, by fastavro, row by row.

With a registry each value says which schema it was written with, and is resolved to ours; without one it was written
with ours. Spark's option ignores bytes behind a value, as `from_avro` does; a `Form` does not.
"""

from __future__ import annotations

import json
from functools import lru_cache
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader

from ..runtime.clock import SystemClock
from ..state.errors import CorruptData, InvalidRequest
from .avro_schemas import parsed, refuse_recursive
from .avro_type import shaping
from .form import Form, TypedColumn
from .row_refused import RowRefused
from .schema_registry import FRAME, MAGIC, RegistryAccess, access_by_url

RETRIES = 3
_AROUND = "TierstateValue"
_NOT_OF_TYPE = pa.ArrowException, OverflowError, TypeError, ValueError


class AvroValues:
    """Of a record's schema, as `from_avro`. ``registry``: its URL, None: values are bare."""

    def __init__(self, text: str, kind: pa.StructType, registry: str | None) -> None:
        self._schema = parsed(text, "the reader's schema")
        self._shape, self._type = shaping(text), kind
        self._registry = None if registry is None else access_by_url(registry)

    def of(self, values: pa.Array) -> pa.Array:
        """Raises RowRefused for bytes that are no such value, and what `SchemaRegistry.schema` raises."""
        rows = [self._row(row, value) for row, value in enumerate(values.to_pylist())]
        try:
            return pa.array(rows, self._type)
        except _NOT_OF_TYPE:
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

    def _written(self, row: int, value: bytes, registry: RegistryAccess) -> Any:
        """The schema it was written with."""
        if not _is_framed(value):
            reason = f"a value does not begin with 0 and the id of a schema, but with {value[: FRAME.size].hex()}"
            raise RowRefused(row, CorruptData, reason)
        try:
            return _writer(registry, FRAME.unpack_from(value)[1], None)
        except CorruptData as error:
            raise RowRefused(row, CorruptData, str(error)) from error

    def _checked(self, row: int, made: Any) -> None:
        try:
            pa.array([made], self._type)
        except _NOT_OF_TYPE as error:
            raise RowRefused(row, CorruptData, f"a value is not of the schema: {error}") from error


class StrictAvro:
    """Of any schema, as `Form` has it: the whole bytes are one value, or they are corrupt."""

    def __init__(self, form: Form, kind: pa.DataType, registry: RegistryAccess | None) -> None:
        """``registry``: None where values are bare. Raises InvalidRequest where they are not."""
        if form.registered and (registry is None or not registry.url):
            raise InvalidRequest("values that name their schema need a schema registry: set registry.url")
        self._around = None if pa.types.is_struct(kind) else _AROUND
        self._schema = parsed(_wrapped(form.schema, self._around), "the schema")
        self._shape, self._type = shaping(form.schema), kind
        self._registry = registry if form.registered else None
        self._writers: dict[int, Any] = {}

    def of(self, values: pa.Array) -> TypedColumn:
        """Raises Unavailable, AccessDenied."""
        found = values.to_pylist()
        rows, corrupt = [], []
        for value in found:
            try:
                rows.append(None if value is None else self._row(value))
                corrupt.append(False)
            except _Corrupt:
                rows.append(None)
                corrupt.append(True)
        try:
            column = pa.array(rows, self._type)
        except _NOT_OF_TYPE:
            for row, made in enumerate(rows):
                if not self._fits(made):
                    rows[row], corrupt[row] = None, True
            column = pa.array(rows, self._type)
        return TypedColumn(column, pa.array(corrupt, pa.bool_()))

    def _row(self, value: bytes) -> Any:
        writer, reader, stream = self._schema, None, BytesIO(value)
        if self._registry is not None:
            if not _is_framed(value):
                raise _Corrupt
            writer, reader = self._writer(FRAME.unpack_from(value)[1], self._registry), self._schema
            stream.seek(FRAME.size)
        try:
            read: Any = schemaless_reader(stream, writer, reader)
            made = self._shape(read if self._around is None else read["value"])
        except Exception as error:  # fastavro raises whatever it meets in damaged bytes
            raise _Corrupt from error
        if stream.tell() != len(value):
            raise _Corrupt
        return made

    def _writer(self, id: int, registry: RegistryAccess) -> Any:
        if id not in self._writers:
            try:
                self._writers[id] = _writer(registry, id, self._around)
            except (CorruptData, InvalidRequest):
                self._writers[id] = None
        if self._writers[id] is None:
            raise _Corrupt
        return self._writers[id]

    def _fits(self, made: Any) -> bool:
        try:
            pa.array([made], self._type)
        except _NOT_OF_TYPE:
            return False
        return True


class _Corrupt(Exception):
    pass


def _is_framed(value: bytes) -> bool:
    return len(value) >= FRAME.size and value[0] == MAGIC


def _wrapped(text: str, around: str | None) -> str:
    """Within a record, whose bytes are the value's own: fastavro parses anew what is none, and forgets to be strict."""
    if around is None:
        return text
    return json.dumps({"type": "record", "name": around, "fields": [{"name": "value", "type": json.loads(text)}]})


@lru_cache(maxsize=1024)
def _writer(access: RegistryAccess, id: int, around: str | None) -> Any:
    """Kept for the process: an id never means another schema. Raises CorruptData, InvalidRequest, and as
    `SchemaRegistry.schema`.
    """
    found = access.open(SystemClock(), retries=RETRIES).schema(id)
    if found.kind != "AVRO" or found.references:
        raise CorruptData("this schema is not Avro's alone", type=found.kind, references=len(found.references))
    made = parsed(_wrapped(found.text, around), f"schema {id} of the registry")
    refuse_recursive(made, {})
    return made
