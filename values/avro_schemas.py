"""Prepare Avro schemas to make fastavro as strict as Avro's Java library: damaged bytes never become other values.

Schemas by which a few bytes could be a value of unlimited depth, or a list of a billion nulls, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastavro.schema import SchemaParseException, parse_schema

from ..state.errors import CorruptData, InvalidRequest


class Members(list[Any]):
    """The members of a union or an enum. An index below 0, which damaged bytes may have, raises IndexError.

    fastavro would count such an index from the end: its compiled code adds the length first. So the length is 0 here.
    """

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, int) and at < 0:
            raise IndexError(f"no member {at}")
        return super().__getitem__(at)

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


def parsed(text: str, what: str) -> Any:
    """Return the schema for fastavro, without logical types: values keep their stored type. Raises InvalidRequest."""
    return of_json(text, what, lambda schema: _strict(parse_schema(_without_logical(schema)), {}))


def with_logical_types(text: str, what: str, named: dict[str, Any]) -> Any:
    """Return a schema with logical types. ``named``: the types of earlier schemas; those of this schema are added."""
    return of_json(text, what, lambda schema: _strict(parse_schema(schema, named), dict(named)))


def of_json(text: str, what: str, made: Callable[[Any], Any]) -> Any:
    """Return the result of ``made`` for the parsed JSON. Raises InvalidRequest that names the schema as ``what``."""
    try:
        return made(json.loads(text))
    except (ValueError, SchemaParseException, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"{what} is no Avro schema: {type(error).__name__}: {error}") from error


def name_of(text: str) -> str | None:
    """Return the full name of a schema, or None if it has none. Raises InvalidRequest."""
    schema = of_json(text, "the schema", lambda document: document)
    if not isinstance(schema, dict) or not isinstance(name := schema.get("name"), str):
        return None
    space = schema.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"


def _without_logical(schema: Any) -> Any:
    """Return a schema without logical types. As in Avro's Java library, stored values are resolved first; only the
    reader schema's logical types apply.
    """
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _without_logical(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [field | {"type": _without_logical(field["type"])} for field in kept["fields"]]
    return kept


def _strict(schema: Any, named: dict[str, Any]) -> Any:
    """Make a parsed schema as strict as Avro's Java library, in place. ``named``: the types met so far, by name."""
    if isinstance(schema, list):
        return Members(_strict(each, named) for each in schema)
    if not isinstance(schema, dict):
        return schema
    if "name" in schema:
        named[schema["name"]] = schema
    for name in ("type", "items", "values"):
        if name in schema:
            schema[name] = _strict(schema[name], named)
    if "symbols" in schema:
        schema["symbols"] = Members(schema["symbols"])
    for field in schema.get("fields", ()):
        field["type"] = _strict(field["type"], named)
        if "default" in field:
            field["default"] = _default(field["type"], field["default"], named)
    return schema


def _default(schema: Any, value: Any, named: dict[str, Any]) -> Any:
    """Return a default as a decoded value. fastavro returns its JSON: bytes as a string, with fields missing."""
    if value is None:
        return None
    if isinstance(schema, list):
        return _default(next(each for each in schema if each != "null"), value, named)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "bytes" | "fixed":
            return value if isinstance(value, bytes) else value.encode("latin-1")
        case "array":
            return [_default(schema["items"], each, named) for each in value]
        case "map":
            return {key: _default(schema["values"], each, named) for key, each in value.items()}
        case "record":
            return {
                field["name"]: _default(
                    field["type"], value[field["name"]] if field["name"] in value else field["default"], named
                )
                for field in schema["fields"]
            }
    return value if isinstance(kind, str) else _default(kind, value, named)


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
