"""Read and write schemas in Spark's DDL, without a JVM: ``id bigint, tags array<string>, nested struct<a:int>``.

Spark calls a data source's `schema` in a Python process that has no Spark session.
"""

from __future__ import annotations

import re

import pyarrow as pa

from ..state.errors import InvalidRequest

SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_WRITTEN = {kind: name for name, kind in SIMPLE.items() if name not in ("byte", "short", "integer", "long", "real")}
KNOWN = f"{', '.join(_WRITTEN.values())}, decimal, array, map, struct"
CORRUPT = "_corrupt_record"
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<sign>[<>(),:])|(?P<end>$))")


def struct_of(text: str, what: str) -> pa.StructType:
    """Return the schema's type. Raises InvalidRequest that names the schema as ``what``, and the invalid part."""
    return _Reader(text, what).whole()


def list_of(element: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", element))


def map_of(value: pa.DataType) -> pa.MapType:
    """Return the type of a map with strings as keys."""
    return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", value))


class _Reader:
    """Parses in one pass from left to right; ``_token`` is the current token."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what, self._at = text, what, 0
        self._token = ""
        self._advance()

    def whole(self) -> pa.StructType:
        wrapped = self._token.lower() == "struct" and self._text[self._at :].lstrip().startswith("<")
        kind = self._type() if wrapped else self._fields("")
        if self._token:
            raise self._wrong("the end")
        return kind

    def _fields(self, end: str) -> pa.StructType:
        fields: list[pa.Field] = []
        names: set[str] = set()
        while True:
            if end and not fields and self._token == end:
                break
            name = self._name()
            if self._token == ":":
                self._advance()
            if name.lower() in names:
                raise InvalidRequest(f"{self._what}: a field is named twice", field=name)
            if not end and name == CORRUPT:
                raise InvalidRequest(f"{self._what}: from_json fills this field itself", field=name)
            names.add(name.lower())
            fields.append(pa.field(name, self._type()))
            if self._token.upper() == "NOT":
                raise InvalidRequest(f"{self._what}: every field may be null, NOT NULL is not kept", field=name)
            if self._token != ",":
                break
            self._advance()
        return pa.struct(fields)

    def _type(self) -> pa.DataType:
        name = self._name().lower()
        if name in ("array", "map", "struct"):
            self._take("<")
            kind: pa.DataType
            if name == "array":
                kind = list_of(self._type())
            elif name == "struct":
                kind = self._fields(">")
            else:
                if self._type() != pa.string():
                    raise InvalidRequest(f"{self._what}: the keys of a map are strings", got=self._text)
                self._take(",")
                kind = map_of(self._type())
            self._take(">")
            return kind
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name not in SIMPLE:
            raise InvalidRequest(f"{self._what}: no type that can be read here", type=name, types=KNOWN)
        return SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        precision, scale = "10", "0"
        if self._token == "(":
            self._advance()
            precision = self._name()
            if self._token == ",":
                self._advance()
                scale = self._name()
            self._take(")")
        if not (precision.isdecimal() and scale.isdecimal() and 1 <= int(precision) <= 38 >= int(scale)):
            raise self._wrong("decimal(precision, scale)")
        if int(scale) > int(precision):
            raise self._wrong("a scale that is not above the precision")
        return pa.decimal128(int(precision), int(scale))

    def _name(self) -> str:
        token = self._token
        if not token or token in "<>(),:":
            raise self._wrong("a name")
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        self._advance()
        return name

    def _take(self, sign: str) -> None:
        if self._token != sign:
            raise self._wrong(repr(sign))
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise InvalidRequest(f"{self._what} is no schema", at=repr(self._text[self._at :][:20]))
        self._token, self._at = match.group().strip(), match.end()

    def _wrong(self, due: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self._what} is no schema like id bigint, tags array<string>: {due} is due",
            got=repr(self._token),
            before=repr(self._text[self._at :][:20]),
        )


def ddl_of(kind: pa.DataType) -> str:
    """Return the type in Spark's DDL. A struct becomes only the list of its fields, which `struct_of` reads."""
    if pa.types.is_struct(kind):
        return ", ".join(f"{_quoted(field.name)} {_written(field.type)}" for field in kind)
    return _written(kind)


def _written(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_written(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_written(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string, {_written(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _WRITTEN[kind]


def _quoted(name: str) -> str:
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"
