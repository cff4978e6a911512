"""The form of keys or values, which defines how their bytes become a column of one type.

    json     a value is exactly one object; the fields of the schema have their types
    avro     a value is exactly one value of the schema or, with a registry, of the writer schema that it names
    string   a value is UTF-8

Any other value is corrupt: it is null in the column and marked as corrupt, so that the caller can keep the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..state.errors import InvalidRequest

JSON, AVRO, STRING = "json", "avro", "string"
FORMATS = (JSON, AVRO, STRING)
CORRUPT = "_corrupt"
"""The column that has the bytes of values that do not parse."""


@dataclass(frozen=True, slots=True)
class Form:
    """``schema``: DDL for JSON, ``id bigint, tags array<string>``; a schema's JSON for Avro. ``registered``: each value
    begins with 0 and the four-byte id of its writer schema, and is resolved to ``schema``, the reader schema.
    """

    format: str
    schema: str = ""
    registered: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidRequest(f"a format is one of {', '.join(FORMATS)}", got=repr(self.format))
        if self.registered and self.format != AVRO:
            raise InvalidRequest("a schema registry is asked for Avro alone", format=self.format)
        if bool(self.schema.strip()) == (self.format == STRING):
            raise InvalidRequest(
                "a string has no schema" if self.format == STRING else f"{self.format} needs a schema",
                schema=self.schema or None,
            )

    def kind(self, what: str = "the schema") -> pa.DataType:
        """Return the column's type. Raises InvalidRequest that names the unsupported part of the schema.

        ``what``: the schema's name in the error.
        """
        if self.format == JSON:
            from .avro_type import kept
            from .ddl import struct_of

            return kept(what, struct_of(self.schema, what))
        if self.format == AVRO:
            from .avro_opaque import readable
            from .avro_type import type_of_avro

            return type_of_avro(readable(self.schema, what), what)
        return pa.string()

    def record_name(self) -> str | None:
        """Return the full name of the record of an Avro schema."""
        from .avro_schemas import name_of

        return name_of(self.schema)

    def opaque(self) -> dict[str, str]:
        """Return the fields that are bytes because no column has their type, and why."""
        if self.format != AVRO:
            return {}
        from .avro_opaque import opaque

        schema = opaque(self.schema)
        return {} if schema is None else dict(schema.fields)

    def as_json(self) -> dict[str, Any]:
        return {"format": self.format, "schema": self.schema, "registered": self.registered}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Form:
        """Return the form that `as_json` converted. Raises InvalidRequest for any other object."""
        match document:
            case {"format": str(format), "schema": str(schema), "registered": bool(registered)}:
                return cls(format, schema, registered)
        raise InvalidRequest("this is no form of values", got=repr(document)[:200])


class SchemaGrown(Exception):
    """Raised when a writer schema of the registry has more than the reader schema; ``form`` has both merged."""

    def __init__(self, form: Form) -> None:
        super().__init__("a schema of the registry has what the form lacks")
        self.form = form

    def __reduce__(self) -> tuple[object, ...]:
        # the task that found the schema sends the exception to another process
        return SchemaGrown, (self.form,)
