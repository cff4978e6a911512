"""Convert one JSON text to one value of an Arrow type, equal to `from_json` in PERMISSIVE mode: the slow reference.

A field that cannot be converted is null and the others stay, as in Spark since 3.4 (partial results). A text that is
not JSON, or not an object, becomes a row of nulls; an empty text becomes null. Follows Spark's ``JacksonParser``.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ..log.java_text import java_text
from .java_times import days, micros
from .json_tokens import (
    ARRAY,
    END_ARRAY,
    END_OBJECT,
    FALSE,
    FLOAT,
    INT,
    NAME,
    NULL,
    OBJECT,
    STRING,
    TRUE,
    BadJson,
    Tokens,
    Undecided,
)

Converter: TypeAlias = Callable[[Tokens], Any]
_NOT_A_NUMBER = {
    "NaN": float("nan"),
    "+INF": float("inf"),
    "+Infinity": float("inf"),
    "Infinity": float("inf"),
    "-INF": float("-inf"),
    "-Infinity": float("-inf"),
}
_LONG = (-(2**63), 2**63 - 1)
_RANGES = {
    pa.int8(): (-128, 255),  # Jackson's: values above 127 wrap around
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): _LONG,
}
_EXACT = decimal.Context(prec=4000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_BIG_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGE_EXPONENT = 1000
_SURE_DIGITS = 15
"""Up to this many digits, not far from 1, all Javas write the same; beyond, Java writes the shortest only since 19."""


class Unconverted(Exception):
    """Raised for a value that is not of its type. ``partial``: the converted part, in a tuple of one or none."""

    def __init__(self, *partial: Any) -> None:
        super().__init__()
        self.partial = partial


class NotStrict(Exception):
    """Raised for a text that is not exactly one object of the type."""


class JsonRows:
    """Converts texts to one type. A struct becomes a dictionary, a map pairs, dates and timestamps integers."""

    def __init__(self, kind: pa.StructType) -> None:
        self._fields = _converters(kind)

    def of(self, value: bytes | None) -> dict[str, Any] | None:
        """Return the row of a text as `from_json` does. Raises Undecided."""
        if value is None:
            return None
        tokens = Tokens(java_text(value))
        try:
            token = tokens.next()
            if token is None:
                return None
            return _object(tokens, self._fields) if token == OBJECT else dict.fromkeys(self._fields)
        except BadJson:
            return dict.fromkeys(self._fields)
        except Unconverted as error:
            return dict(error.partial[0]) if error.partial else dict.fromkeys(self._fields)

    def strictly(self, value: bytes) -> dict[str, Any]:
        """Return the same row as `of`. Raises NotStrict if a field has another type, or if the text is not an object or
        continues after it; Undecided.
        """
        tokens = Tokens(java_text(value))
        try:
            if tokens.next() != OBJECT:
                raise NotStrict
            row = _object(tokens, self._fields)
            if tokens.next() is not None:
                raise NotStrict
        except (BadJson, Unconverted) as error:
            raise NotStrict from error
        return row


def _object(tokens: Tokens, fields: dict[str, Converter]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(fields)
    whole = True
    while _until(tokens, END_OBJECT):
        name = tokens.name
        convert = None if name is None else fields.get(name)
        if name is None or convert is None:
            tokens.skip_children()
            continue
        try:
            row[name] = convert(tokens)
        except (BadJson, Unconverted) as error:
            whole = False
            if isinstance(error, Unconverted) and error.partial:
                row[name] = error.partial[0]
            else:
                tokens.skip_children()
    if not whole:
        raise Unconverted(row)
    return row


def _map(tokens: Tokens, convert: Converter) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    whole, bad = True, False
    while _until(tokens, END_OBJECT):
        key = tokens.name
        if key is None:
            raise Undecided("a key of a map that is broken")
        try:
            pairs.append((java_string(key), convert(tokens)))
        except (BadJson, Unconverted) as error:
            if isinstance(error, Unconverted) and error.partial:
                whole = False
                pairs.append((java_string(key), error.partial[0]))
            else:
                bad = True
                tokens.skip_children()
    if bad:
        raise Unconverted
    if not whole:
        raise Unconverted(pairs)
    return pairs


def _array(tokens: Tokens, convert: Converter) -> list[Any]:
    values: list[Any] = []
    whole = True
    while _until(tokens, END_ARRAY):
        try:
            values.append(convert(tokens))
        except Unconverted as error:
            if not error.partial:
                raise
            whole = False
            values.append(error.partial[0])
    if not whole:
        raise Unconverted(values)
    return values


def _until(tokens: Tokens, end: str) -> bool:
    return tokens.next() not in (None, end)


def _converters(kind: pa.StructType) -> dict[str, Converter]:
    return {field.name: _converter(field.type) for field in kind}


def _converter(kind: pa.DataType) -> Converter:
    """Return the conversion of a value, for which JSON's null is null."""
    of_token = _of_token(kind)

    def convert(tokens: Tokens) -> Any:
        while tokens.token == NAME:
            tokens.next()
        token = tokens.token
        if token is None or token == NULL:
            return None
        if token == STRING:
            tokens.text()  # even if it is not converted: Spark reads its length
        return of_token(token, tokens)

    return convert


def _of_token(kind: pa.DataType) -> Callable[[str, Tokens], Any]:
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return lambda token, tokens: _integer(token, tokens, low, high)
    if pa.types.is_floating(kind):
        single = kind == pa.float32()
        return lambda token, tokens: _double(token, tokens, single=single)
    if pa.types.is_decimal(kind):
        return lambda token, tokens: _decimal(token, tokens, kind)
    if pa.types.is_struct(kind):
        fields = _converters(kind)
        return lambda token, tokens: _object(_expected(token, tokens, OBJECT), fields)
    if pa.types.is_list(kind):
        element = _converter(kind.value_type)
        return lambda token, tokens: _array(_expected(token, tokens, ARRAY), element)
    if pa.types.is_map(kind):
        value = _converter(kind.item_type)
        return lambda token, tokens: _map(_expected(token, tokens, OBJECT), value)
    return _PLAIN[kind]


def _expected(token: str, tokens: Tokens, kind: str) -> Tokens:
    if token != kind:
        raise Unconverted
    return tokens


def _boolean(token: str, tokens: Tokens) -> bool:
    if token not in (TRUE, FALSE):
        raise Unconverted
    return token == TRUE


def _integer(token: str, tokens: Tokens, low: int, high: int) -> int:
    if token != INT or not low <= (number := int(tokens.text())) <= high:
        raise Unconverted
    return number - 256 if high == 255 and number > 127 else number


def _double(token: str, tokens: Tokens, *, single: bool) -> float:
    text = tokens.text()
    if token == STRING:
        if text not in _NOT_A_NUMBER:
            raise Unconverted
        return _NOT_A_NUMBER[text]
    if token not in (INT, FLOAT):
        raise Unconverted
    if token == INT and len(text.lstrip("-")) <= 18 and int(text) == 0:
        return 0.0  # integers have no -0
    if not single:
        return float(text)
    if token == INT and len(text.lstrip("-")) > 18:
        with np.errstate(over="ignore"):
            return float(np.float32(float(text)))  # as Jackson: by way of a double
    return _float(text)


def _float(text: str) -> float:
    """Return the nearest float in one rounding; NumPy and Python would first round to a double."""
    if text in _NOT_A_NUMBER:
        return _NOT_A_NUMBER[text]
    try:
        nearest: float = pa.scalar(text).cast(pa.float32()).as_py()
    except pa.ArrowInvalid:
        return float("-inf") if text.startswith("-") else float("inf")
    return nearest


def _decimal(token: str, tokens: Tokens, kind: pa.Decimal128Type) -> decimal.Decimal:
    if token not in (INT, FLOAT, STRING):
        raise Unconverted
    text = tokens.text()
    if not _BIG_DECIMAL.fullmatch(text):
        if any(letter.isdecimal() and not letter.isascii() for letter in text):
            raise Undecided("a decimal in other digits")
        raise Unconverted
    exact = _EXACT.create_decimal(text)
    if not exact:
        exact = decimal.Decimal(0)
    elif abs(exact.adjusted()) > _LARGE_EXPONENT or len(text) > _LARGE_EXPONENT:
        raise Undecided("a decimal with a large exponent")
    rounded = exact.quantize(decimal.Decimal((0, (1,), -kind.scale)), decimal.ROUND_HALF_UP, _EXACT)
    if rounded and rounded.adjusted() + 1 + kind.scale > kind.precision:
        raise Unconverted
    return abs(rounded) if not rounded else rounded


def _timestamp(token: str, tokens: Tokens) -> int:
    if token == INT:
        seconds = int(tokens.text())
        if not _LONG[0] <= seconds <= _LONG[1]:
            raise Unconverted
        return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63  # as Java multiplies
    time_micros = micros(tokens.text()) if token == STRING else None
    if time_micros is None:
        raise Unconverted
    return time_micros


def _date(token: str, tokens: Tokens) -> int:
    date_days = days(tokens.text()) if token == STRING else None
    if date_days is None:
        raise Unconverted
    return date_days


def _string(token: str, tokens: Tokens) -> str:
    """Return a string; any other value becomes its JSON as Jackson writes it."""
    return java_string(tokens.text()) if token == STRING else "".join(_written(tokens))


_PLAIN = {pa.bool_(): _boolean, pa.timestamp("us", "UTC"): _timestamp, pa.date32(): _date, pa.string(): _string}


def java_string(text: str) -> str:
    """Return the text with a question mark for each half of a surrogate pair, as Java encodes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _written(tokens: Tokens) -> Iterator[str]:
    """Yield the JSON of the token and everything in it, with commas between elements."""
    open, following = 0, False
    while True:
        token = tokens.token
        if token is None or (token in (END_OBJECT, END_ARRAY) and not open):
            raise Unconverted
        if following and token not in (END_OBJECT, END_ARRAY):
            yield ","
        following = token not in (OBJECT, ARRAY, NAME)
        match token:
            case "{" | "[":
                open += 1
                yield token
            case "}" | "]":
                open -= 1
                yield token
            case "name":
                yield _quoted(tokens.name or "") + ":"
            case "string":
                yield _quoted(tokens.text())
            case "int":
                yield str(int(tokens.text()))
            case "float":
                yield _double_text(float(_NOT_A_NUMBER.get(tokens.text(), tokens.text())))
            case _:
                yield token
        if not open:
            return
        tokens.next()


_ESCAPED = {chr(code): f"\\u{code:04X}" for code in range(0x20)} | {
    "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\",
}  # fmt: skip
_TO_ESCAPE = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')


def _quoted(text: str) -> str:
    return '"' + _TO_ESCAPE.sub(lambda found: _escaped(found.group()), text) + '"'


def _escaped(letter: str) -> str:
    """Return a letter's escape. Jackson writes each surrogate as an escape of its own."""
    if letter in _ESCAPED:
        return _ESCAPED[letter]
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


def _double_text(number: float) -> str:
    """Return the text of ``Double.toString``. Raises Undecided where it depends on the version of Java."""
    if number != number or number in (float("inf"), float("-inf")):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    if not number:
        return "-0.0" if str(number).startswith("-") else "0.0"
    sign, digits, exponent = decimal.Decimal(repr(number)).normalize().as_tuple()
    if len(digits) > _SURE_DIGITS or not 1e-6 < abs(number) < 1e15:
        raise Undecided("a number with many digits, or a large exponent, where a string is due: see docs/spark.md")
    assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent
    minus = "-" if sign else ""
    if -3 < point <= 7:
        whole, rest = text[: max(point, 0)].ljust(point, "0"), "0" * max(-point, 0) + text[max(point, 0) :]
        return f"{minus}{whole or '0'}.{rest or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
