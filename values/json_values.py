"""Convert JSON values to one Arrow array of structs: by Arrow's own reader if the result is equal, else row by row.

Arrow reads a whole batch at once and is stricter: values that it refuses are read row by row. It accepts the following
values, which Spark reads differently, so we search for them:

    two objects in one value,  each value is wrapped, {"v":[[VALUE]]}, on its own line. A line ends at the outermost
    text behind the object     level or the text is broken (a string cannot contain a line break, and no object follows
                               a value within another), so that as many rows as values means one line for each. A list
                               of one list of one object ends with our brackets, or the value contains }]]: searched for
    null                       for Spark a row of nulls: Arrow's nulls are counted
    NaN, Inf, a NUL            Arrow accepts them in other places
    long numbers, deep nesting Jackson has limits
    -0 as an integer           Arrow makes it the double -0.0
    decimals, floats, times    Arrow does not check the precision, rounds once, and knows other forms of time

Memory: twice the values of a batch, in addition to them, and the resulting columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ..state.errors import InvalidRequest
from .form import TypedColumn
from .json_rows import JsonRows, NotStrict
from .json_tokens import MAX_DEPTH, Undecided
from .row_refused import RowRefused

SOME = 512
"""Rows that are tried together if the whole batch cannot be read at once."""
FEW = 8
"""Up to this many rows are converted one by one without another try."""
SURE_BYTES = 1000
"""The size of a value below which it has neither a number nor a nesting that Jackson would refuse."""
LONG_BYTES = 48_000
_PIECE_BYTES = 1 << 16
"""Bytes that are searched at a time: they stay in the processor's cache."""
_Made = TypeVar("_Made")
_OUR_END = re.compile(rb"\}[ \t\r\n]*\][ \t\r\n]*\]")
_ODD_NUMBER = re.compile(rb"[-:\[,\s](?:NaN|Inf)")
_IN_ROW = re.compile(r"in row (\d+)$")
_LONG_NUMBER = re.compile(rb"[0-9.eE+-]{%d}" % SURE_BYTES)
_OF_NUMBER = np.isin(np.arange(256), np.frombuffer(b"0123456789.eE+-", np.uint8))
_PLAIN_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?$"
_PLAIN_DATE = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"


class JsonValues:
    """Converts values of one schema as `from_json` does in PERMISSIVE mode. Holds no values."""

    def __init__(self, kind: pa.StructType) -> None:
        self._rows = JsonRows(kind)
        self._type = kind
        read = None if _has_map(self._type) else pa.schema([("v", pa.list_(pa.list_(_as_read(self._type))))])
        self._read = read and pj.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")

    def of(self, values: pa.Array) -> pa.Array:
        """Convert a binary array to an array of the same length. Raises RowRefused."""
        struct_array = self.at_once(values)
        if struct_array is not None:
            return struct_array
        return pa.concat_arrays(self.in_parts(values, lambda read: read, self.one_by_one))

    def in_parts(
        self, values: pa.Array, quick: Callable[[pa.Array], _Made], slow: Callable[[pa.Array, int], _Made]
    ) -> list[_Made]:
        """Split the values so that one odd value slows down only its neighbours. If all are odd, fewer tries are made.

        For most errors Arrow reports the row. That is a hint where to split, not a proof. ``quick`` converts an array
        that Arrow has read; ``slow`` converts values, and gets the row of the first one.
        """
        if self._read is None or not len(values):
            return [slow(values, 0)]
        parts, slowly = [], 0  # consecutive parts that were read one by one
        left = [(at, min(at + SOME, len(values))) for at in reversed(range(0, len(values), SOME))]
        while left:
            at, end = left.pop()
            few = min(FEW << max(0, slowly - 2), SOME // 2)
            outcome = None if end - at <= few else self._try(values.slice(at, end - at))
            if isinstance(outcome, pa.Array):
                parts.append(quick(outcome))
                slowly = 0
                continue
            if end - at <= few or (outcome is not None and outcome < few):
                cut = min(at + few, end)
                parts.append(slow(values.slice(at, cut - at), at))
                slowly += 1
                rest = [(cut, end)]
            elif outcome is None:
                cut = (at + end) // 2
                rest = [(at, cut), (cut, end)]
            else:
                odd = at + min(outcome, end - at - 1)
                rest = [(at, odd), (odd, odd + 1), (odd + 1, end)]
            left += [(start, stop) for start, stop in reversed(rest) if start < stop]
        return parts

    def one_by_one(self, values: pa.Array, first: int = 0) -> pa.Array:
        """Convert values row by row; ``first`` is the row of the first one. Raises RowRefused."""
        rows: list[dict[str, Any] | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._rows.of(value))
            except Undecided as error:
                reason = f"only Spark can say what from_json makes of this value; read it as binary. {error}"
                raise RowRefused(first + row, InvalidRequest, reason) from error
        return pa.array(rows, self._type)

    def at_once(self, values: pa.Array) -> pa.Array | None:
        """Convert all values with Arrow, or return None if the result may differ from Spark's."""
        if self._read is None:
            return None
        outcome = self._try(values)
        return outcome if isinstance(outcome, pa.Array) else None

    def _try(self, values: pa.Array) -> pa.Array | int | None:
        """Return the values read by Arrow, the row of an error that Arrow reports, or None if the result may differ."""
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
        except pa.ArrowInvalid as error:
            place = _IN_ROW.search(str(error))
            return int(place[1]) if place else None
        column = table.column("v")
        if len(column) != len(values) or column.num_chunks != 1:
            return None
        structs = _only(_only(column.chunk(0)))
        if structs is None or structs.null_count:
            return None
        result = _converted(structs, self._type)
        return result if result is None or not values.null_count else pc.if_else(values.is_valid(), result, None)


class StrictJson:
    """Reads values of one schema for a `Form`: exactly one object of the schema, or corrupt."""

    def __init__(self, kind: pa.StructType) -> None:
        self._values, self._rows, self._type = JsonValues(kind), JsonRows(kind), kind

    def of(self, values: pa.Array) -> TypedColumn:
        struct_array = self._values.at_once(values)
        if struct_array is not None:
            return _all_right(struct_array)
        parts = self._values.in_parts(values, _all_right, self.one_by_one)
        return TypedColumn(
            pa.concat_arrays([part.column for part in parts]), pa.concat_arrays([part.corrupt for part in parts])
        )

    def one_by_one(self, values: pa.Array, first: int) -> TypedColumn:
        rows: list[dict[str, Any] | None] = []
        for value in values.to_pylist():
            try:
                rows.append(None if value is None else self._rows.strictly(value))
            except (NotStrict, Undecided):
                rows.append(None)
        column = pa.array(rows, self._type)
        return TypedColumn(column, pc.and_(column.is_null(), values.is_valid()))


def _all_right(read: pa.Array) -> TypedColumn:
    return TypedColumn(read, pa.repeat(False, len(read)))


def _only(lists: pa.Array | None) -> pa.Array | None:
    """Return the elements of lists that have exactly one element each, or None for other lists."""
    if lists is None or lists.null_count or lists.offset:
        return None
    ends = np.frombuffer(lists.buffers()[1], np.int32)[: len(lists) + 1]
    return lists.values if np.array_equal(ends, np.arange(len(ends))) else None


def _has_our_end(data: pa.Buffer) -> bool:
    """Return whether a value could close the lists around it. A quick check comes before the exact one."""
    raw = np.frombuffer(data, np.uint8)
    behind = raw[1:][raw[:-1] == ord("}")]
    return bool(((behind == ord("]")) | (behind <= ord(" "))).any()) and _OUR_END.search(data) is not None


def _surely_plain(lines: pa.Array, data: pa.Buffer) -> bool:
    """Return whether the data has nothing that Arrow accepts and Jackson does not."""
    raw = np.frombuffer(data, np.uint8)
    pieces = [raw[at : at + _PIECE_BYTES + 2] for at in range(0, len(raw), _PIECE_BYTES)]
    if not all(piece.min() for piece in pieces):
        return False
    if any(_may_be_in(piece, word) for piece in pieces for word in ("NaN", "Inf")) and _ODD_NUMBER.search(data):
        return False
    longest = pc.max(pc.binary_length(lines)).as_py() or 0
    if longest < SURE_BYTES:
        return True
    if longest > LONG_BYTES or (_may_have_long_number(raw) and _LONG_NUMBER.search(data)):
        return False
    opened = [(piece[:_PIECE_BYTES] == ord("{")) | (piece[:_PIECE_BYTES] == ord("[")) for piece in pieces]
    places = np.concatenate([np.flatnonzero(each) + number * _PIECE_BYTES for number, each in enumerate(opened)])
    ends = np.frombuffer(lines.buffers()[1], np.int32)[: len(lines) + 1]
    return bool(np.diff(np.searchsorted(places, ends)).max() < MAX_DEPTH)


def _may_be_in(raw: npt.NDArray[np.uint8], word: str) -> bool:
    """Return whether the first and the last of the word's three letters are at the right distance: quick, not exact."""
    return bool(((raw[:-2] == ord(word[0])) & (raw[2:] == ord(word[2]))).any())


def _may_have_long_number(raw: npt.NDArray[np.uint8]) -> bool:
    """Return whether three consecutive samples, every 250th byte, may be of a number, as in a run of `SURE_BYTES`."""
    sampled = _OF_NUMBER[raw[::250]]
    return bool((sampled[:-2] & sampled[1:-1] & sampled[2:]).any())


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """Return the bytes of all texts, one behind the other."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)
    first, last = int(ends[texts.offset]), int(ends[texts.offset + len(texts)])
    return (texts.buffers()[2] or pa.py_buffer(b"")).slice(first, last - first)


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's reader, with times as strings, so that their form can be checked."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    return kind


def _converted(read: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the read array in its own type, or None if a value may differ from Spark's."""
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
        if (np.signbit(numbers) & (numbers == 0)).any():
            return None
        if kind == pa.float32() and (np.abs(numbers) >= 1e18).any():
            return None
    if pa.types.is_decimal(kind):
        largest = pc.max(pc.abs(read)).as_py()
        if largest is not None and largest >= 10 ** (kind.precision - kind.scale):
            return None
    return read
