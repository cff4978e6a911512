"""Avro schemas as fastavro reads with them, as strict as Avro's Java: damaged bytes are never read as others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastavro.schema import SchemaParseException, parse_schema

from ..state.errors import InvalidRequest


class Members(list[Any]):
    """Of a union or an enum: a number below 0, which damaged bytes have, is none of them.

    fastavro counts it from the end: its compiled code adds the length first, so it must not find one.
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
    """As fastavro reads with it; logical types stay what they are stored as. Raises InvalidRequest."""
    return of_json(text, what, lambda schema: _strict(parse_schema(_without_logical(schema)), {}))


def with_logical_types(text: str, what: str, named: dict[str, Any]) -> Any:
    """As `parsed`, but logical types are what they mean. ``named``: types of other schemas, then of this one too."""
    return of_json(text, what, lambda schema: _strict(parse_schema(schema, named), dict(named)))


def of_json(text: str, what: str, made: Callable[[Any], Any]) -> Any:
    """What is made of a schema. Raises InvalidRequest that names it as ``what``."""
    try:
        return made(json.loads(text))
    except (ValueError, SchemaParseException, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"{what} is no Avro schema: {type(error).__name__}: {error}") from error


def _without_logical(schema: Any) -> Any:
    """As Avro's Java: what is stored is resolved, then ours is made of it. The writer's scale counts for nothing."""
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
    """A parsed one, changed in place where fastavro reads otherwise than Avro's Java. ``named``: types met so far."""
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
    """As it would be read: fastavro hands out the JSON, where bytes are a string and fields may be left out."""
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
