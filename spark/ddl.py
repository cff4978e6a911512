"""A schema as Spark's DDL writes it, without a JVM: ``id bigint, tags array<string>, nested struct<a:int>``.

A data source is asked for its schema in a Python process that has no Spark beside it.
"""

from __future__ import annotations

import re

from pyspark.sql import types as T

from ..state.errors import InvalidRequest

SIMPLE: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "byte": T.ByteType(),
    "smallint": T.ShortType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
}
KNOWN = "boolean, tinyint, smallint, int, bigint, float, double, decimal, string, date, timestamp, array, map, struct"
CORRUPT = "_corrupt_record"
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<sign>[<>(),:])|(?P<end>$))")


def struct_of(text: str, option: str) -> T.StructType:
    """Raises InvalidRequest that names the option, and what in it is not understood."""
    return _Reader(text, option).whole()


class _Reader:
    """One pass from left to right; ``_found``: the token that stands."""

    def __init__(self, text: str, option: str) -> None:
        self._text, self._option, self._at = text, option, 0
        self._found = ""
        self._advance()

    def whole(self) -> T.StructType:
        wrapped = self._found.lower() == "struct" and self._text[self._at :].lstrip().startswith("<")
        kind = self._type() if wrapped else self._fields("")
        if self._found:
            raise self._wrong("the end")
        assert isinstance(kind, T.StructType)
        return kind

    def _fields(self, end: str) -> T.StructType:
        fields: list[T.StructField] = []
        names: set[str] = set()
        while True:
            if end and not fields and self._found == end:
                break
            name = self._name()
            if self._found == ":":
                self._advance()
            if name.lower() in names:
                raise InvalidRequest(f"option {self._option}: a field is named twice", field=name)
            if not end and name == CORRUPT:
                raise InvalidRequest(f"option {self._option}: from_json fills this field itself", field=name)
            names.add(name.lower())
            fields.append(T.StructField(name, self._type()))
            if self._found.upper() == "NOT":
                raise InvalidRequest(
                    f"option {self._option}: every field may be null, NOT NULL is not kept", field=name
                )
            if self._found != ",":
                break
            self._advance()
        return T.StructType(fields)

    def _type(self) -> T.DataType:
        name = self._name().lower()
        if name in ("array", "map", "struct"):
            self._take("<")
            made: T.DataType
            if name == "array":
                made = T.ArrayType(self._type())
            elif name == "struct":
                made = self._fields(">")
            else:
                if not isinstance(self._type(), T.StringType):
                    raise InvalidRequest(f"option {self._option}: the keys of a map are strings", got=self._text)
                self._take(",")
                made = T.MapType(T.StringType(), self._type())
            self._take(">")
            return made
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name not in SIMPLE:
            raise InvalidRequest(f"option {self._option}: no type that can be read here", type=name, types=KNOWN)
        return SIMPLE[name]

    def _decimal(self) -> T.DecimalType:
        precision, scale = "10", "0"
        if self._found == "(":
            self._advance()
            precision = self._name()
            if self._found == ",":
                self._advance()
                scale = self._name()
            self._take(")")
        if not (precision.isdecimal() and scale.isdecimal() and 1 <= int(precision) <= 38 >= int(scale)):
            raise self._wrong("decimal(precision, scale)")
        if int(scale) > int(precision):
            raise self._wrong("a scale that is not above the precision")
        return T.DecimalType(int(precision), int(scale))

    def _name(self) -> str:
        found = self._found
        if not found or found in "<>(),:":
            raise self._wrong("a name")
        name = found[1:-1].replace("``", "`") if found.startswith("`") else found
        self._advance()
        return name

    def _take(self, sign: str) -> None:
        if self._found != sign:
            raise self._wrong(repr(sign))
        self._advance()

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise InvalidRequest(f"option {self._option} is no schema", at=repr(self._text[self._at :][:20]))
        self._found, self._at = found.group().strip(), found.end()

    def _wrong(self, due: str) -> InvalidRequest:
        return InvalidRequest(
            f"option {self._option} is no schema like id bigint, tags array<string>: {due} is due",
            got=repr(self._found),
            before=repr(self._text[self._at :][:20]),
        )
