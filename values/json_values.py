"""Convert JSON values to one Arrow array of structs. A value is exactly one object of the schema, or it is corrupt.

Arrow's reader converts a batch at once. Values that it cannot read, or might read differently, are converted one by one
by msgspec's strict decoder, whose result counts. Arrow's reader accepts the following, so the code checks for it:

    two objects in one value,  Each value is wrapped, {"v":[[VALUE]]}, on its own line. At the end of a line, all JSON
    text after the object      is closed, or it is invalid: a string contains no line break, and no object follows a
                               value inside another. So as many rows as values means one line for each. Lists of one
                               list of one object end with the added brackets, unless a value contains }]] (searched).
    null                       Arrow's nulls are counted.
    NaN, Inf, a NUL            The text is searched: Arrow accepts them in other places.
    deep nesting               Opening brackets are counted, up to `MAX_DEPTH`.
    an infinite double         A number with many digits may become one.
    -0 as an integer           Arrow makes it the double -0.0.
    decimals, times            Arrow does not check the precision, and accepts other forms of time.

Memory: twice the values of a batch, in addition to the values themselves, and the resulting columns.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .typed_column import TypedColumn, all_parsed, columned

SOME = 512
"""The number of values that are converted together if a batch without its corrupt values cannot be."""
_CORRUPT = msgspec.MsgspecError, UnicodeDecodeError
MAX_DEPTH = 500
"""A value that is nested deeper is corrupt. Spark has the same limit."""
SURE_BYTES = 2 * MAX_DEPTH
"""A value of fewer bytes cannot be nested deeper than `MAX_DEPTH`."""
_PIECE_BYTES = 1 << 16
"""The number of bytes that are searched at a time. They fit into the processor's cache."""
_OUR_END = re.compile(rb"\}[ \t\r\n]*\][ \t\r\n]*\]")
_ODD_NUMBER = re.compile(rb"[-:\[,\s](?:NaN|Inf)")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.S)
_PLAIN_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?$"
_PLAIN_DATE = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_DECODED = {
    pa.bool_(): bool,
    pa.string(): str,
    pa.float32(): float,
    pa.float64(): float,
    pa.date32(): date,
    pa.timestamp("us", "UTC"): datetime,
    pa.timestamp("us"): Annotated[datetime, msgspec.Meta(tz=False)],
    pa.binary(): bytes,  # of a text in Base64
}


class JsonValues:
    """Reads values of one schema for a `Form`. Holds no values."""

    def __init__(self, kind: pa.StructType) -> None:
        self._type = kind
        self._strict: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_decoded(kind))
        read = None if _is_slow(kind) else pa.schema([("v", pa.list_(pa.list_(_as_read(kind))))])
        self._read = read and pj.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")

    def of(self, values: pa.Array) -> TypedColumn:
        if (column := self.at_once(values)) is not None:
            return all_parsed(column)
        if len(values) <= SOME:
            return self.one_by_one(values)
        pieces = (values.slice(at, SOME).to_pylist() for at in range(0, len(values), SOME))
        corrupt = pa.array([self._is_corrupt(value) for piece in pieces for value in piece])
        if pc.any(corrupt).as_py():
            column = self.at_once(pc.if_else(corrupt, pa.scalar(None, values.type), values))
            if column is not None:
                return TypedColumn(column, corrupt)
        parts = []
        for at in range(0, len(values), SOME):
            some = values.slice(at, SOME)
            column = self.at_once(some)
            parts.append(self.one_by_one(some) if column is None else all_parsed(column))
        return TypedColumn(
            pa.concat_arrays([part.column for part in parts]), pa.concat_arrays([part.corrupt for part in parts])
        )

    def one_by_one(self, values: pa.Array) -> TypedColumn:
        """Convert values one by one with msgspec's strict decoder, which decides whether a value is corrupt."""
        return columned(values.to_pylist(), self._row, _CORRUPT, self._type)

    def _row(self, value: bytes) -> Any:
        return msgspec.to_builtins(self._decode(value), builtin_types=(bytes, date, datetime, Decimal))

    def _is_corrupt(self, value: bytes | None) -> bool:
        try:
            if value is not None:
                self._decode(value)
        except _CORRUPT:
            return True
        return False

    def _decode(self, value: bytes) -> Any:
        value.decode()  # msgspec does not check the UTF-8 of fields outside the schema
        if len(value) >= SURE_BYTES and _depth(value) > MAX_DEPTH:
            raise msgspec.DecodeError("it is nested too deep")
        return self._strict.decode(value)

    def at_once(self, values: pa.Array) -> pa.Array | None:
        """Convert all values with Arrow. Returns None if a value may be corrupt, or may differ from `one_by_one`."""
        if self._read is None:
            return None
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return None
        lines = pc.binary_join_element_wise('{"v":[[', texts.fill_null("{}"), "]]}\n", "")
        data = _bytes_of(lines)
        if _has_our_end(_bytes_of(texts)) or not _surely_plain(lines, data):
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1024)),
                parse_options=self._read,
            )
        except pa.ArrowInvalid:
            return None
        column = table.column("v")
        if len(column) != len(values) or column.num_chunks != 1:
            return None
        structs = _only(_only(column.chunk(0)))
        if structs is None or structs.null_count:
            return None
        result = _converted(structs, self._type)
        return result if result is None or not values.null_count else pc.if_else(values.is_valid(), result, None)


def _decoded(kind: pa.DataType) -> Any:
    """Return the Python type of a value, for msgspec."""
    if pa.types.is_struct(kind):
        # a TypedDict loses fields whose names are not ASCII (msgspec 0.22.0)
        names = {f"field{at}": field.name for at, field in enumerate(kind)}
        fields = [(name, _decoded(field.type) | None, None) for name, field in zip(names, kind, strict=True)]
        return msgspec.defstruct("Row", fields, rename=names)
    if pa.types.is_list(kind):
        return list[_decoded(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _decoded(kind.item_type) | None]  # type: ignore[misc]
    if pa.types.is_decimal(kind):
        return Decimal
    if kind in _INTEGER_BITS:
        half = 1 << _INTEGER_BITS[kind] - 1
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    return _DECODED[kind]


def _depth(value: bytes) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(value):
        mark = match.group()
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        deepest = max(deepest, depth)
    return deepest


def _only(lists: pa.Array | None) -> pa.Array | None:
    """Return the elements of lists that have exactly one element each. Returns None for other lists."""
    if lists is None or lists.null_count or lists.offset:
        return None
    ends = np.frombuffer(lists.buffers()[1], np.int32)[: len(lists) + 1]
    return lists.values if np.array_equal(ends, np.arange(len(ends))) else None


def _has_our_end(data: pa.Buffer) -> bool:
    """Return whether a value contains ``}]]``, which closes the lists around it. A quick check precedes the search."""
    raw = np.frombuffer(data, np.uint8)
    behind = raw[1:][raw[:-1] == ord("}")]
    return bool(((behind == ord("]")) | (behind <= ord(" "))).any()) and _OUR_END.search(data) is not None


def _surely_plain(lines: pa.Array, data: pa.Buffer) -> bool:
    """Return whether the text surely has no NaN, Inf, NUL or deep nesting, which Arrow accepts and msgspec does not."""
    raw = np.frombuffer(data, np.uint8)
    pieces = [raw[at : at + _PIECE_BYTES + 2] for at in range(0, len(raw), _PIECE_BYTES)]
    if not all(piece.min() for piece in pieces):
        return False
    if any(_may_be_in(piece, word) for piece in pieces for word in ("NaN", "Inf")) and _ODD_NUMBER.search(data):
        return False
    if (pc.max(pc.binary_length(lines)).as_py() or 0) < SURE_BYTES:
        return True
    opened = [(piece[:_PIECE_BYTES] == ord("{")) | (piece[:_PIECE_BYTES] == ord("[")) for piece in pieces]
    places = np.concatenate([np.flatnonzero(each) + number * _PIECE_BYTES for number, each in enumerate(opened)])
    ends = np.frombuffer(lines.buffers()[1], np.int32)[: len(lines) + 1]
    return bool(np.diff(np.searchsorted(places, ends)).max() < MAX_DEPTH)


def _may_be_in(raw: npt.NDArray[np.uint8], word: str) -> bool:
    """Return whether the three-letter word may be in the text: compares only the first and the last letter, quickly."""
    return bool(((raw[:-2] == ord(word[0])) & (raw[2:] == ord(word[2]))).any())


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    ends = np.frombuffer(texts.buffers()[1], np.int32)
    first, last = int(ends[texts.offset]), int(ends[texts.offset + len(texts)])
    return (texts.buffers()[2] or pa.py_buffer(b"")).slice(first, last - first)


def _is_slow(kind: pa.DataType) -> bool:
    """Return whether Arrow's reader has no such type: maps and Base64."""
    slow = pa.types.is_map(kind) or pa.types.is_binary(kind)
    return slow or any(_is_slow(kind.field(number).type) for number in range(kind.num_fields))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's reader: times as strings, so that their form can be checked, floats as doubles."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if kind == pa.float32():
        return pa.float64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    return kind


def _converted(read: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return ``read`` as an array of ``kind``. Returns None if a value may differ from that of `one_by_one`."""
    if pa.types.is_struct(kind):
        fields = [_converted(read.field(number), kind.field(number).type) for number in range(kind.num_fields)]
        if any(each is None for each in fields):
            return None
        return pa.Array.from_buffers(kind, len(read), [read.buffers()[0]], read.null_count, read.offset, fields)
    if pa.types.is_list(kind):
        values = _converted(read.values, kind.value_type)
        if values is None:
            return None
        return pa.Array.from_buffers(kind, len(read), read.buffers()[:2], read.null_count, read.offset, [values])
    return _converted_leaf(read, kind)


def _converted_leaf(read: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        plain = pc.match_substring_regex(read, _PLAIN_TIME if pa.types.is_timestamp(kind) else _PLAIN_DATE)
        if pa.types.is_timestamp(kind) and kind.tz is None:
            plain = pc.and_(plain, pc.invert(pc.ends_with(read, "Z")))
        if not pc.all(plain, min_count=0).as_py():
            return None
        try:
            if pa.types.is_timestamp(kind):
                return pc.replace_substring(read, "Z", "").cast(pa.timestamp("us")).cast(kind)
            return read.cast(kind)
        except pa.ArrowInvalid:
            return None
    if pa.types.is_floating(kind):
        numbers = np.asarray(read.drop_null())
        if (np.signbit(numbers) & (numbers == 0)).any() or np.isinf(numbers).any():
            return None
        return read.cast(kind)
    if pa.types.is_decimal(kind):
        largest = pc.max(pc.abs(read)).as_py()
        if largest is not None and largest >= 10 ** (kind.precision - kind.scale):
            return None
    return read
