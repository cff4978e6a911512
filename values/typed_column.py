"""A column of typed values, and the column `_corrupt` with the bytes that do not parse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

CORRUPT_TYPE = pa.struct([("key", pa.binary()), ("value", pa.binary())])
_NOT_OF_TYPE = pa.ArrowException, OverflowError, TypeError, ValueError


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """``column`` is null where the bytes are null or corrupt. ``corrupt`` has booleans, never null."""

    column: pa.Array
    corrupt: pa.Array


def all_parsed(column: pa.Array) -> TypedColumn:
    return TypedColumn(column, pa.repeat(False, len(column)))


def columned(rows: list[Any], corrupt: list[bool], kind: pa.DataType) -> TypedColumn:
    """Return the column of ``rows``. A row that is not of the Arrow type, such as a decimal with too many digits, is
    corrupt, too.
    """
    try:
        column = pa.array(rows, kind)
    except _NOT_OF_TYPE:
        for at, row in enumerate(rows):
            if not _fits(row, kind):
                rows[at], corrupt[at] = None, True
        column = pa.array(rows, kind)
    return TypedColumn(column, pa.array(corrupt, pa.bool_()))


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except _NOT_OF_TYPE:
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
            texts = pa.array([_text(value) for value in values.to_pylist()], pa.string())
        return TypedColumn(texts, pc.and_(texts.is_null(), values.is_valid()))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
