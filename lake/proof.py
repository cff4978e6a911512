"""Compares rows with the rows that must be there: those of the log's records, or of the files that are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..runtime.units import counted


def in_step(
    these: Iterable[pa.Table], those: Iterable[pa.Table], none: pa.Table
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield two streams of rows in pairs of equally many rows. Where only one stream has rows left, the other of the
    pair is ``none``.
    """
    these, those = filter(len, these), filter(len, those)
    one = other = none
    while True:
        one, other = (rows if len(rows) else next(rest, none) for rows, rest in ((one, these), (other, those)))
        count = min(len(one), len(other)) or max(len(one), len(other))
        if not count:
            return
        yield one.slice(0, count), other.slice(0, count)
        one, other = one.slice(count), other.slice(count)


def difference(rows: pa.Table, expected: pa.Table, offset: str) -> tuple[str, int | None] | None:
    """Return the first difference in the columns of ``expected``, and where it is. Returns None if there is none.

    ``offset``: the column of offsets. If the rows lack it, nothing tells where a difference is.
    """
    offsets = None
    if offset in expected.column_names:
        have, offsets = (each.column(offset).combine_chunks() for each in (rows, expected))
        if not have.equals(offsets):
            return _other_offsets(have, offsets)
    if rows.num_rows != expected.num_rows:
        return f"{counted(rows.num_rows, 'row')} for {counted(expected.num_rows, 'record')} of the log", None
    for name in expected.column_names:
        one, other = rows.column(name).combine_chunks(), expected.column(name).combine_chunks()
        if not same(one, other):
            at = next(at for at in range(len(one)) if not same(one.slice(at, 1), other.slice(at, 1)))
            return f"the column {name} is not the log's", None if offsets is None else offsets[at].as_py()
    return None


def _other_offsets(have: pa.Array, want: pa.Array) -> tuple[str, int | None]:
    if len(lacking := _not_in(want, have)):
        return counted(len(lacking), "record of the log is no row", "records of the log are no rows"), lacking[
            0
        ].as_py()
    if len(strange := _not_in(have, want)):
        return f"{counted(len(strange), 'row is no record', 'rows are no records')} of the log", strange[0].as_py()
    if len(have) == len(want):
        return "rows are not in the order of the log", want[0].as_py()
    counts = pc.value_counts(have)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    return f"{counted(len(have) - len(want), 'row is', 'rows are')} there again", twice[0].as_py()


def _not_in(these: pa.Array, those: pa.Array) -> pa.Array:
    return these.filter(pc.invert(pc.is_in(these, value_set=those)))


def same(these: pa.Array, those: pa.Array) -> bool:
    """Return whether two arrays of one type have equal values and nulls. Floats compare by bits: NaN equals NaN."""
    kind = these.type
    if pa.types.is_floating(kind):
        bits = {32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return bool(these.view(bits).equals(those.view(bits)))
    if pa.types.is_map(kind):
        entries = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        return same(these.cast(entries), those.cast(entries))
    if pa.types.is_struct(kind):
        parts = zip(these.flatten(), those.flatten(), strict=True)
        return these.is_valid().equals(those.is_valid()) and all(same(*pair) for pair in parts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = (pc.list_value_length(each) for each in (these, those))
        return next(lengths).equals(next(lengths)) and same(these.flatten(), those.flatten())
    return bool(these.equals(those))
