"""Avro records: their schemas as text, and their bytes, bare or with the id of a schema."""

from __future__ import annotations

import io
import json
import struct
from itertools import count
from random import Random
from typing import Any

from fastavro import parse_schema, schemaless_writer


def record(*fields: tuple[Any, ...], name: str = "Order") -> str:
    """Return a record schema of names and types, and defaults where there is a third item."""
    made = [{"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def written(schema: str, value: Any, id: int | None = None) -> bytes:
    data = io.BytesIO()
    schemaless_writer(data, parse_schema(json.loads(schema)), value)
    return data.getvalue() if id is None else struct.pack(">bI", 0, id) + data.getvalue()


SYMBOLS = ["A", "B", "C", "DD"]
_SIMPLE = ("int", "long", "float", "double", "boolean", "string", "bytes")
_LOGICAL: list[dict[str, Any]] = [
    {"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"}, {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 5},
    {"type": "string", "logicalType": "uuid"},
]  # fmt: skip
_OTHER = ["null", ["int", "string"], ["null", "boolean", {"type": "map", "values": "long"}], ["long", "null", "double"]]
"""Types that only a writer has."""
_WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}
_DEFAULTS = {
    "int": 7,
    "long": -1 << 40,
    "float": 0.5,
    "double": -0.1,
    "boolean": True,
    "string": "é",
    "bytes": "\u00ff",
}


class Schemas:
    """Draws schemas, always the same ones for the same seed."""

    def __init__(self, chance: Random) -> None:
        self._chance, self._names = chance, count()

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": self.type(depth)} for at in range(self._chance.randint(1, 5))]
        return {"type": "record", "name": f"R{next(self._names)}", "fields": fields}

    def type(self, depth: int) -> Any:
        one = self._chance.random()
        if one < 0.25 and depth < 3:
            return self._chance.choice([["null", self.plain(depth)], [self.plain(depth), "null"]])
        return self._chance.choice([["int", "long"], ["float", "null", "double"]]) if one > 0.95 else self.plain(depth)

    def plain(self, depth: int) -> Any:
        match self._chance.randrange(10 if depth < 3 else 5):
            case 0:
                return {
                    "type": "enum",
                    "name": f"E{next(self._names)}",
                    "symbols": SYMBOLS[: self._chance.randint(1, 4)],
                }
            case 1:
                return dict(self._chance.choice(_LOGICAL))
            case 2:
                fixed = {"type": "fixed", "name": f"F{next(self._names)}", "size": self._chance.choice([1, 4, 16, 20])}
                decimal = {"logicalType": "decimal", "precision": 2, "scale": 1}
                return fixed | (decimal if self._chance.random() < 0.3 else {})
            case 5 | 6:
                return {"type": "array", "items": self.type(depth + 1)}
            case 7:
                return {"type": "map", "values": self.type(depth + 1)}
            case 8:
                return self.record(depth + 1)
        return self._chance.choice(_SIMPLE)

    def reader(self, writer: Any) -> Any:
        """Return a schema that values of ``writer`` may be resolved to, or may not."""
        if self._chance.random() < 0.1 and not isinstance(writer, list) and writer != "null":
            made = self.reader(writer)
            return made if isinstance(made, list) else ["null", made]
        if isinstance(writer, list):
            made = [self.reader(each) if each != "null" and len(writer) == 2 else each for each in writer]
            return [each for member in made for each in (member if isinstance(member, list) else [member])]
        if isinstance(writer, str):
            return self._chance.choice([writer, writer, *_WIDER.get(writer, [])])
        made = dict(writer)
        for inner in ("items", "values"):
            if inner in made:
                made[inner] = self.reader(made[inner])
        if "symbols" in made and self._chance.random() < 0.3:
            made |= {"symbols": made["symbols"][:2][::-1]} | ({"default": "A"} if self._chance.random() < 0.5 else {})
        if "fields" in made:
            made["fields"] = [field | {"type": self.reader(field["type"])} for field in made["fields"]]
            self._chance.shuffle(made["fields"])
            kept = [field for field in made["fields"] if self._chance.random() < 0.85]
            added = self._chance.choice(_SIMPLE)
            empty: list[dict[str, Any]] = [
                {"name": "more", "type": added, "default": _DEFAULTS[added]},
                {"name": "none", "type": ["null", self.plain(2)], "default": None},
                {"name": "list", "type": {"type": "array", "items": "int"}, "default": self._chance.choice([[], [1]])},
            ]
            made["fields"] = kept + [field for field in empty if self._chance.random() < 0.2]
            if self._chance.random() < 0.1 and kept:
                made["fields"][0] = kept[0] | {"name": "renamed", "aliases": [kept[0]["name"]]}
            made["fields"] = made["fields"] or empty[:1]
        return made

    def with_others(self, reader: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with fields that no column has."""
        others = [{"name": f"other{at}", "type": each} for at, each in enumerate([*_OTHER, self.plain(1)])]
        fields = [*reader["fields"], *self._chance.sample(others, self._chance.randrange(3))]
        self._chance.shuffle(fields)
        return reader | {"fields": fields}

    def value(self, schema: Any) -> Any:
        """Return a value of a schema, as it is before logical types."""
        chance = self._chance
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        name = schema if isinstance(schema, str) else schema["type"]
        match name:
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice([0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(-(2**20), 2**20)])
            case "long":
                return chance.choice([0, -64, 64, 2**63 - 1, -(2**63), 2**53 + 1, chance.randrange(2**40)])
            case "float" | "double":
                return chance.choice([0.0, -0.0, 1.5, -1e30, 0.1, float("inf"), float("nan")])
            case "string":
                return chance.choice(["", "x", "é", "日本" * 9, "abcdefgh" * 3, "\0", "😀"])
            case "bytes":
                return chance.choice([b"\x01", b"\xff\x80", b"\0\0\x10", b"\0" * 18, bytes(chance.randbytes(15))])
            case "fixed":
                return chance.choice([bytes(schema["size"]), chance.randbytes(schema["size"])])
            case "enum":
                return chance.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(chance.choice([0, 0, 1, 2, 70]))]
            case "map":
                return {f"{at:x}": self.value(schema["values"]) for at in range(chance.choice([0, 1, 3]))}
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}


def damaged(chance: Random, value: bytes) -> bytes:
    """Return the bytes with more, fewer or other bytes."""
    at = chance.randrange(len(value) + 1)
    match chance.randrange(5):
        case 0:
            return value[:at]
        case 1:
            return value + chance.randbytes(chance.randint(1, 3))
        case 2:
            return value[:at] + chance.randbytes(1) + value[at:]
        case 3:
            return value[:at] + value[at + 1 :]
    return value[:at] + chance.choice([b"\x01", b"\x80", b"\xff" * 9, chance.randbytes(1)]) + value[at + 1 :]


def unlogical(schema: Any) -> Any:
    """Return the schema without logical types, so that fastavro writes stored values."""
    if isinstance(schema, list):
        return [unlogical(each) for each in schema]
    if isinstance(schema, dict):
        return {name: unlogical(each) for name, each in schema.items() if name not in ("logicalType", "default")}
    return schema
