"""JSON values to one Arrow array of structs: by Arrow's own reader where that is known to be equal, else row by row.

Arrow reads a whole batch at once and is stricter: what it refuses goes the other way. What it takes, and Spark reads
otherwise, is this, and is looked for:

    two objects in one value,  each value is wrapped, {"v":[[VALUE]]}, a line each. A line ends at the outermost level
    text behind the object     or the text is broken (a line break cannot stand in a string, and no object follows a
                               value within another), so that as many rows as values means one line for each. Lists of
                               one list of one object end with ours, or }]] stands in the value: looked for
    null                       for Spark a row of nulls: Arrow's nulls are counted
    NaN, Inf, a NUL            Arrow takes them in other places
    long numbers, deep nesting Jackson has limits
    -0 as a whole number       a double of it is -0.0 for Arrow
    decimals, floats, times    Arrow does not look at the precision, rounds once, and knows other forms of time

Memory: of a batch its values twice more, and the columns made.
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
"""Rows of a batch that is not plain which are tried together."""
FEW = 8
"""Rows that are converted one by one without another try."""
SURE_BYTES = 1000
"""Of a value: below, it has neither a number nor a nesting that Jackson would refuse."""
LONG_BYTES = 48_000
_PIECE_BYTES = 1 << 16
"""What is looked through at once: it stays in the processor's cache."""
_Made = TypeVar("_Made")
_OUR_END = re.compile(rb"\}[ \t\r\n]*\][ \t\r\n]*\]")
_ODD_NUMBER = re.compile(rb"[-:\[,\s](?:NaN|Inf)")
_IN_ROW = re.compile(r"in row (\d+)$")
_LONG_NUMBER = re.compile(rb"[0-9.eE+-]{%d}" % SURE_BYTES)
_OF_NUMBER = np.isin(np.arange(256), np.frombuffer(b"0123456789.eE+-", np.uint8))
_PLAIN_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?$"
_PLAIN_DATE = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"


class JsonValues:
    """For one schema, as `from_json` in PERMISSIVE mode. Holds no values."""

    def __init__(self, kind: pa.StructType) -> None:
        self._rows = JsonRows(kind)
        self._type = kind
        read = None if _has_map(self._type) else pa.schema([("v", pa.list_(pa.list_(_as_read(self._type))))])
        self._read = read and pj.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")

    def of(self, values: pa.Array) -> pa.Array:
        """Of a binary array, as many. Raises RowRefused."""
        made = self.at_once(values)
        if made is not None:
            return made
        return pa.concat_arrays(self.in_parts(values, lambda read: read, self.one_by_one))

    def in_parts(
        self, values: pa.Array, quick: Callable[[pa.Array], _Made], slow: Callable[[pa.Array, int], _Made]
    ) -> list[_Made]:
        """Cut down to what is odd: one value that is costs its neighbours only. Where all are, tries get fewer.

        Arrow says of most errors in which row they are. That is a hint where to cut, and proves nothing.
        ``quick``: of what Arrow read; ``slow``: of values and the row of the first.
        """
        if self._read is None or not len(values):
            return [slow(values, 0)]
        parts, slowly = [], 0  # times in a row that went one by one
        left = [(at, min(at + SOME, len(values))) for at in reversed(range(0, len(values), SOME))]
        while left:
            at, end = left.pop()
            few = min(FEW << max(0, slowly - 2), SOME // 2)
            found = None if end - at <= few else self._try(values.slice(at, end - at))
            if isinstance(found, pa.Array):
                parts.append(quick(found))
                slowly = 0
                continue
            if end - at <= few or (found is not None and found < few):
                cut = min(at + few, end)
                parts.append(slow(values.slice(at, cut - at), at))
                slowly += 1
                rest = [(cut, end)]
            elif found is None:
                cut = (at + end) // 2
                rest = [(at, cut), (cut, end)]
            else:
                odd = at + min(found, end - at - 1)
                rest = [(at, odd), (odd, odd + 1), (odd + 1, end)]
            left += [(start, stop) for start, stop in reversed(rest) if start < stop]
        return parts

    def one_by_one(self, values: pa.Array, first: int = 0) -> pa.Array:
        """``first``: the row of the first value."""
        made: list[dict[str, Any] | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                made.append(self._rows.of(value))
            except Undecided as error:
                reason = f"only Spark can say what from_json makes of this value; read it as binary. {error}"
                raise RowRefused(first + row, InvalidRequest, reason) from error
        return pa.array(made, self._type)

    def at_once(self, values: pa.Array) -> pa.Array | None:
        """None: it is not known to be equal."""
        if self._read is None:
            return None
        found = self._try(values)
        return found if isinstance(found, pa.Array) else None

    def _try(self, values: pa.Array) -> pa.Array | int | None:
        """A number: where Arrow says that the error is."""
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:  # no UTF-8
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
        found = _only(_only(column.chunk(0)))
        if found is None or found.null_count:
            return None
        made = _converted(found, self._type)
        return made if made is None or not values.null_count else pc.if_else(values.is_valid(), made, None)


class StrictJson:
    """For one schema, as `Form` has it: exactly one object of it, or corrupt."""

    def __init__(self, kind: pa.StructType) -> None:
        self._values, self._rows, self._type = JsonValues(kind), JsonRows(kind), kind

    def of(self, values: pa.Array) -> TypedColumn:
        made = self._values.at_once(values)
        if made is not None:
            return _all_right(made)
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
    """The element of each; None: not each has one."""
    if lists is None or lists.null_count or lists.offset:
        return None
    ends = np.frombuffer(lists.buffers()[1], np.int32)[: len(lists) + 1]
    return lists.values if np.array_equal(ends, np.arange(len(ends))) else None


def _has_our_end(data: pa.Buffer) -> bool:
    """Whether a value could end the lists that are put around it: a quick look first."""
    raw = np.frombuffer(data, np.uint8)
    behind = raw[1:][raw[:-1] == ord("}")]
    return bool(((behind == ord("]")) | (behind <= ord(" "))).any()) and _OUR_END.search(data) is not None


def _surely_plain(lines: pa.Array, data: pa.Buffer) -> bool:
    """Whether nothing is in it that Arrow takes and Jackson does not."""
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
    """Whether the first and the last of the word's three letters stand as they would: quick, not exact."""
    return bool(((raw[:-2] == ord(word[0])) & (raw[2:] == ord(word[2]))).any())


def _may_have_long_number(raw: npt.NDArray[np.uint8]) -> bool:
    """A run of `SURE_BYTES` has three of every 250th byte in a row."""
    sampled = _OF_NUMBER[raw[::250]]
    return bool((sampled[:-2] & sampled[1:-1] & sampled[2:]).any())


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """All of them, one behind the other."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)
    first, last = int(ends[texts.offset]), int(ends[texts.offset + len(texts)])
    return (texts.buffers()[2] or pa.py_buffer(b"")).slice(first, last - first)


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Times come as strings, so that one sees of which form they are."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    return kind


def _converted(read: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """What was read, in its own type; None: something in it is not known to be equal."""
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
