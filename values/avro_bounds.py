"""Avro schemas by which a few bytes would become anything: nested without end, or a list of a billion nulls."""

from __future__ import annotations

from typing import Any

from ..state.errors import CorruptData, InvalidRequest

MOST_EMPTY = 8
"""Fields of a record that take no bytes."""


def refuse_recursive(schema: Any, named: dict[str, bool]) -> None:
    """Raises InvalidRequest for a record within itself, of a schema that was parsed: fastavro's compiled reader follows
    a value into any depth, and ends the process where the stack does. ``named``: whether one is around what is next.
    """
    if isinstance(schema, list):
        for each in schema:
            refuse_recursive(each, named)
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
    """Whether a value takes a byte at least; ``named``: of the records around it and before it.

    Raises CorruptData for a list of what may take none, and a record with many such fields.
    """
    if isinstance(schema, list):
        for each in schema:
            refuse_nothing(each, named)
        return True
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema != "null")
    kind = schema["type"]
    if kind == "record" or kind == "error":
        name = str(schema["name"]).rpartition(".")[2]
        named[name] = False  # within itself it takes what is around it
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
