"""Fields of an Avro record that no column has a type for, such as a record within itself: they become bytes.

    {"id": long, "next": ["null", "Node"]}        a value: id, then the bytes of next
    {"id": long, "next": ["null", "bytes"]}       the same value, with the length of these bytes before them

The second is what all readers here get. Only the outermost fields are replaced, each with all that is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastavro.schema import parse_schema

from ..state.errors import CorruptData, InvalidRequest
from .avro_schemas import of_json, refuse_nothing
from .avro_tree import Tree, named_tree, text_of
from .avro_type import type_of_tree

DEEPEST = 400
"""The most levels of a value that is skipped."""
BYTES = [{"type": "null"}, {"type": "bytes"}]


@dataclass(frozen=True, slots=True)
class Opaque:
    """``text``: the schema with bytes for these fields. ``fields``: why each of them has no type, by its name."""

    text: str
    fields: Mapping[str, str]
    _tree: Tree
    _named: Mapping[str, Any]

    def wrapped(self, value: bytes, at: int) -> bytes:
        """Return a value of the schema as one of `text`. ``at``: where it begins. Raises IndexError and the like for
        damaged bytes.
        """
        parts = [value[:at]]
        for field in self._fields:
            end = self._end(field["type"], value, at, 0)
            part = value[at:end]
            if field["name"] in self.fields:
                part = b"\0" if _is_null(field["type"], value, at) else b"\x02" + _long(len(part)) + part
            parts.append(part)
            at = end
        if at > len(value):
            raise IndexError(at)
        return b"".join([*parts, value[at:]])

    @property
    def _fields(self) -> list[dict[str, Any]]:
        assert isinstance(self._tree, dict)
        fields: list[dict[str, Any]] = self._tree["fields"]
        return fields

    def _end(self, kind: Any, value: bytes, at: int, depth: int) -> int:
        """Return where a value of this type ends."""
        if depth > DEEPEST:
            raise IndexError("nested too deep")
        if isinstance(kind, list):
            number, at = _read(value, at)
            if number < 0:
                raise IndexError(number)
            return self._end(kind[number], value, at, depth + 1)
        match kind["type"]:
            case "null":
                return at
            case "boolean":
                return at + 1
            case "float":
                return at + 4
            case "double":
                return at + 8
            case "int" | "long" | "enum":
                return _read(value, at)[1]
            case "fixed":
                return at + int(kind["size"])
            case "bytes" | "string":
                return _sized(value, at)
            case "array" | "map" as name:
                while (block := _read(value, at))[0]:
                    count, at = block
                    if count < 0:
                        at = _sized(value, at)
                        continue
                    for _ in range(count):
                        at = _sized(value, at) if name == "map" else at
                        at = self._end(kind["values" if name == "map" else "items"], value, at, depth + 1)
                        if at > len(value):
                            raise IndexError(at)
                return block[1]
            case "record":
                for field in kind["fields"]:
                    at = self._end(field["type"], value, at, depth + 1)
                return at
        return self._end(self._named[kind["type"]], value, at, depth + 1)


def opaque(text: str, what: str = "the schema") -> Opaque | None:
    """Return the fields of a record schema that have no type, or None if all have one. Raises InvalidRequest if no
    field has one, or if it is no schema.
    """
    named: dict[str, Any] = {}
    try:
        tree = named_tree(of_json(text, what, lambda document: parse_schema(document, {})), named)
    except RecursionError as error:
        raise InvalidRequest(f"{what} is nested too deep") from error
    if isinstance(tree, list) or tree["type"] != "record":
        return None
    reasons = {field["name"]: why for field in tree["fields"] if (why := _reason(field, what)) is not None}
    if not reasons or len(reasons) == len(tree["fields"]):
        return None
    fields = [
        {"name": field["name"], "type": BYTES, "default": None} if field["name"] in reasons else field
        for field in tree["fields"]
    ]
    return Opaque(text_of(tree | {"fields": fields}), reasons, tree, named)


def readable(text: str, what: str = "the schema") -> str:
    """Return the schema with bytes for the fields that have no type."""
    schema = opaque(text, what)
    return text if schema is None else schema.text


def _reason(field: dict[str, Any], what: str) -> str | None:
    try:
        type_of_tree(field["type"], what)
        refuse_nothing(json.loads(text_of(field["type"])), {})
    except (InvalidRequest, CorruptData) as error:
        return str(error)
    return None


def _is_null(kind: Any, value: bytes, at: int) -> bool:
    return bool((kind[_read(value, at)[0]] if isinstance(kind, list) else kind) == {"type": "null"})


def _read(value: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at ``at``, and where it ends."""
    number = shift = 0
    while value[at] & 0x80:
        number |= (value[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise IndexError("no number")
    number |= value[at] << shift
    return (number >> 1) ^ -(number & 1), at + 1


def _sized(value: bytes, at: int) -> int:
    size, at = _read(value, at)
    if size < 0:
        raise IndexError(size)
    return at + size


def _long(number: int) -> bytes:
    number, parts = number << 1, []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
