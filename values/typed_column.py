"""A column of typed values, and the column `_corrupt` with the bytes that do not parse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

CORRUPT_TYPE = pa.struct([("key", pa.binary()), ("value", pa.binary())])
_Errors = type[Exception] | tuple[type[Exception], ...]
NOT_OF_TYPE = pa.ArrowException, OverflowError, TypeError, ValueError


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """``column`` is null where the bytes are null or corrupt. ``corrupt`` has booleans, never null."""

    column: pa.Array
    corrupt: pa.Array


def all_parsed(column: pa.Array) -> TypedColumn:
    return TypedColumn(column, pa.repeat(False, len(column)))


def columned(
    values: Iterable[bytes | None], convert: Callable[[bytes], Any], errors: _Errors, kind: pa.DataType
) -> TypedColumn:
    """Return the column of the values, converted one by one. A value is corrupt if ``convert`` raises one of
    ``errors``, or if the result is not of the Arrow type, such as a decimal with too many digits.
    """
    rows, corrupt = list[Any](), list[bool]()
    for value in values:
        try:
            row, wrong = None if value is None else convert(value), False
        except errors:
            row, wrong = None, True
        rows.append(row)
        corrupt.append(wrong)
    try:
        column = pa.array(rows, kind)
    except NOT_OF_TYPE:
        for at, row in enumerate(rows):
            if not _fits(row, kind):
                rows[at], corrupt[at] = None, True
        column = pa.array(rows, kind)
    return TypedColumn(column, pa.array(corrupt, pa.bool_()))


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except NOT_OF_TYPE:
        return False
    return True


def corrupt_column(
    raw: Mapping[str, pa.Array], bad: Mapping[str, pa.Array], marked: pa.Array | None = None
) -> pa.Array:
    """Return the column `_corrupt`, which is null in rows without corrupt bytes. ``raw``: the bytes; ``bad``: whether
    they are corrupt. ``marked``: rows that are not null even if all of their bytes parse.
    """
    some = reduce(pc.or_, [*bad.values(), *([] if marked is None else [marked])])
    count = len(some)
    if not pc.any(some).as_py():
        return pa.nulls(count, CORRUPT_TYPE)
    nothing = pa.scalar(None, pa.binary())
    parts = [
        pc.if_else(bad[each.name], raw[each.name], nothing) if each.name in bad else pa.nulls(count, pa.binary())
        for each in CORRUPT_TYPE
    ]
    return pa.StructArray.from_arrays(parts, fields=list(CORRUPT_TYPE), mask=pc.invert(some))


class TextValues:
    """Reads bytes as UTF-8 text. Other bytes are corrupt."""

    def of(self, values: pa.Array) -> TypedColumn:
        try:
            return all_parsed(values.cast(pa.string()))
        except pa.ArrowInvalid:
            return columned(values.to_pylist(), bytes.decode, UnicodeDecodeError, pa.string())
