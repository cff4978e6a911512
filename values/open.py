"""Open the reader of a form, which converts keys or values to a column."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from .form import AVRO, JSON, Form
from .schema_registry import RegistryAccess
from .typed_column import TextValues, TypedColumn


class Reader(Protocol):
    def of(self, values: pa.Array) -> TypedColumn:
        """Return an equally long column. Raises SchemaGrown, InvalidRequest, Unavailable, AccessDenied."""


def open_reader(form: Form, registry: RegistryAccess | None, *, grows: bool = False) -> Reader:
    """Return a reader for one thread. ``grows``: a writer schema with more than the reader schema raises SchemaGrown.

    Raises InvalidRequest as `Form.kind`, and if a registry is needed and none is set.
    """
    kind = form.kind()
    if form.format == JSON:
        from .json_values import JsonValues

        return JsonValues(kind)
    if form.format == AVRO:
        from .avro_values import AvroValues

        return AvroValues(form, kind, registry, grows=grows)
    return TextValues()
