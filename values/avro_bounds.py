"""Refuse Avro schemas by which a few bytes could be a value of unlimited depth, or a list of a billion nulls."""

from __future__ import annotations

from typing import Any

from ..state.errors import CorruptData, InvalidRequest

MOST_EMPTY = 8
"""The maximum number of fields of a record that take no bytes."""


def refuse_recursive(schema: Any, named: dict[str, bool]) -> None:
    """Raise InvalidRequest if a record of a parsed schema contains itself. fastavro's compiled reader follows a value
    to any depth, and a stack overflow ends the process. ``named``: for each record name, whether that record encloses
    ``schema``.
    """
    if isinstance(schema, list):
        for member in schema:
            refuse_recursive(member, named)
    elif isinstance(schema, str):
        if named.get(schema, False):
            raise InvalidRequest("a record is within itself", name=schema)
    else:
        if "fields" in schema:
            named[schema["name"]] = True
            for field in schema["fields"]:
                refuse_recursive(field["type"], named)
            named[schema["name"]] = False
        for inner in ("type", "items", "values"):
            if inner in schema:
                refuse_recursive(schema[inner], named)


def refuse_nothing(schema: Any, named: dict[str, bool]) -> bool:
    """Return whether every value takes at least one byte. ``named``: this answer for the types around and before it.

    Raises CorruptData for a list whose elements may take no bytes, and for a record with many such fields.
    """
    if isinstance(schema, list):
        for member in schema:
            refuse_nothing(member, named)
        return True
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema != "null")
    kind = schema["type"]
    if kind == "record" or kind == "error":
        name = str(schema["name"]).rpartition(".")[2]
        named[name] = False  # a record within itself adds no bytes
        taking = [refuse_nothing(field["type"], named) for field in schema["fields"]]
        if len(taking) - sum(taking) > MOST_EMPTY:
            raise CorruptData("a record has many fields that take no bytes", name=name)
        named[name] = any(taking)
        return named[name]
    if kind == "array" and not refuse_nothing(schema["items"], named):
        raise CorruptData("a list of what takes no bytes has no end")
    if kind == "map":
        refuse_nothing(schema["values"], named)
    if kind == "fixed":
        named[str(schema["name"]).rpartition(".")[2]] = schema["size"] > 0
        return bool(schema["size"] > 0)
    return True if kind in ("array", "map", "enum") else refuse_nothing(kind, named)
