"""Tables that upsert: the newest record of a key is its row, and a record without a value deletes the row.

    log of one partition up to an offset  ->  the newest record of each key  ->  its row, unless it deletes

A key belongs to one Kafka partition, as for Kafka's compaction: the offset alone decides which record is the newest. A
record whose key is null, or does not parse, replaces nothing: it is a row of its own.

A commit takes the newest records of a range, finds the rows of the same keys in the table, and writes the files of
those rows again without them (copy-on-write): pyiceberg writes no delete files, and does not read equality deletes.
Memory: the keys of the range, and the keys of one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.manifest import DataFile

from ..runtime.operation import Operation
from .columns import Rows, aligned
from .log import TopicLog
from .table import LakeTable
from .table_commit import Splits, rewrite_without, tasks_of
from .table_files import Attempt, write_rows
from .table_layout import column_by_id

AT_ONCE = 1 << 20
"""Records whose keys are reduced to the newest at a time."""
MOST_LITERALS = 200
"""So many keys are a filter by their values, so that buckets are skipped too. More are a filter by their bounds."""


@dataclass
class Newest:
    """The newest record of each key, of records that are added in any order. Memory: the keys, and an offset each.

    A code is an offset and whether the record deletes: the newest record of a key has the largest code.
    """

    table: LakeTable
    _waiting: list[pa.Table] = field(default_factory=list)
    _unkeyed: list[pa.Array] = field(default_factory=list)
    _count: int = 0

    def add(self, made_by: Rows, records: pa.Table) -> pa.Table:
        """Add records. Return their rows, in the table's schema."""
        rows, deletes = made_by.changes(records)
        rows = aligned(rows, self.table.schema)
        keys = keys_of(self.table, rows)
        offsets = rows.column(self.table.column("offset")).combine_chunks()
        codes = pc.add(pc.multiply(offsets, 2), deletes.cast(pa.int64()))
        keyed = _keyed(keys)
        self._waiting.append(keys.append_column("code", codes).filter(keyed))
        alone = pc.and_(pc.invert(keyed), pc.invert(deletes))
        self._unkeyed.append(offsets.filter(alone))
        self._count += rows.num_rows
        if self._count >= AT_ONCE:
            self._reduce()
        return rows

    def _reduce(self) -> pa.Table:
        self._count = 0
        if not self._waiting:
            return keys_of(self.table, self.table.schema.empty_table()).append_column("code", pa.array([], pa.int64()))
        both = pa.concat_tables(self._waiting)
        names = both.column_names[:-1]
        newest = both.group_by(names, use_threads=False).aggregate([("code", "max")])
        self._waiting = [newest.rename_columns([*names, "code"])]
        return self._waiting[0]

    def keys(self) -> pa.Table:
        """Return the keys of all records that were added, each once."""
        return self._reduce().drop_columns("code")

    def leave_out(self, keys: pa.Table) -> None:
        """Remove these keys. Call it after the last `add`."""
        self._waiting = [_without(self._reduce(), keys)]

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows that remain. Call it after the last `add`."""
        return of_offsets(rows, self.table.column("offset"), self.offsets)

    @cached_property
    def offsets(self) -> pa.Array:
        """The offsets of the records that are rows: the newest of each key unless it deletes, and those without a key.
        Read it after the last `add`.
        """
        codes = self._reduce().column("code").combine_chunks()
        live = codes.filter(pc.equal(pc.bit_wise_and(codes, 1), 0))
        return pa.concat_arrays([pc.shift_right(live, 1), *self._unkeyed])


def keys_of(table: LakeTable, rows: pa.Table) -> pa.Table:
    """Return the key columns of rows, named by their number."""
    ids = [table.iceberg.schema().find_field(name).field_id for name in table.facts.upsert]
    return pa.table([column_by_id(rows, field_id) for field_id in ids], names=[f"k{at}" for at in range(len(ids))])


def _keyed(keys: pa.Table) -> pa.Array:
    """Return whether each row has all parts of its key."""
    valid = [column.combine_chunks().is_valid() for column in keys.columns]
    keyed = valid[0]
    for part in valid[1:]:
        keyed = pc.and_(keyed, part)
    return keyed


def of_offsets(rows: pa.Table, column: str, offsets: pa.Array) -> pa.Table:
    """Return the rows whose ``column`` is one of these offsets."""
    return rows.filter(pc.is_in(rows.column(column), value_set=offsets))


def without_keys(table: LakeTable, rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows that have none of these keys."""
    offset = table.column("offset")
    numbered = keys_of(table, rows).append_column("offset", rows.column(offset))
    return of_offsets(rows, offset, _without(numbered, keys).column("offset").combine_chunks())


def _without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    return rows.join(keys, keys.column_names, join_type="left anti", use_threads=False)


def upsert(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Operation[list[DataFile]]:
    """Write the newest rows of each partition's one split, and the files that lose rows without them. Return those
    files, which the commit drops.
    """
    touched: dict[str, tuple[DataFile, dict[int, pa.Array]]] = {}
    made_by = table.new_rows()
    for task, split in tasks_of(splits):
        newest = Newest(table)
        with closing(log.read(split)) as batches:
            yield from write_rows(table, attempt, task, batches, made_by, newest)
        for file, offsets in _replaced(table, split.partition, newest.keys()):
            touched.setdefault(file.file_path, (file, {}))[1][split.partition] = offsets
    written = attempt.rows
    for file, gone in touched.values():

        def kept(number: int, rows: pa.Table, gone: dict[int, pa.Array] = gone) -> pa.Table:
            if number not in gone:
                return rows
            return rows.filter(pc.invert(pc.is_in(rows.column(table.column("offset")), value_set=gone[number])))

        yield from rewrite_without(table, attempt, file, kept)
    attempt.kept = attempt.rows - written
    return [file for file, _ in touched.values()]


def _replaced(table: LakeTable, number: int, keys: pa.Table) -> Iterator[tuple[DataFile, pa.Array]]:
    """Yield each file that has rows of these keys, and their offsets."""
    if not keys.num_rows:
        return
    for file in table.data_files(_where(table, number, keys)):
        rows = keyed_rows(table, file, number)
        matched = rows.join(keys, keys.column_names, join_type="left semi", use_threads=False)
        if matched.num_rows:
            yield file, matched.column("offset").combine_chunks()


def keyed_rows(table: LakeTable, file: DataFile, number: int) -> pa.Table:
    """Return the keys and offsets of the rows of a Kafka partition in a file. Memory: these columns of the file."""
    offset, partition = table.column("offset"), table.source
    names = dict.fromkeys([name.partition(".")[0] for name in table.facts.upsert] + [offset])
    with table.opened(file.file_path) as source:
        rows = pq.read_table(source, columns=list(names), filters=[(partition, "==", number)])
    rows = aligned(rows, pa.schema([table.schema.field(name) for name in names]))
    return keys_of(table, rows).append_column("offset", rows.column(offset))


def _where(table: LakeTable, number: int, keys: pa.Table) -> BooleanExpression:
    """Return a filter for the files that may have these keys."""
    where = _predicate(EqualTo, table.source, number)
    for name, column in zip(table.facts.upsert, keys.columns, strict=True):
        if not _has_bounds(column.type):
            continue
        if len(column) <= MOST_LITERALS:
            return And(where, _predicate(In, name, set(column.to_pylist())))
        low, high = pc.min_max(column).as_py().values()
        return And(where, _predicate(GreaterThanOrEqual, name, low), _predicate(LessThanOrEqual, name, high))
    return where


def _predicate(kind: Any, name: str, value: Any) -> BooleanExpression:
    predicate: BooleanExpression = kind(name, value)
    return predicate


def _has_bounds(kind: pa.DataType) -> bool:
    """Return whether values of this type are literals of pyiceberg, and Arrow computes their bounds."""
    return any(holds(kind) for holds in (pa.types.is_integer, pa.types.is_string, pa.types.is_binary))


def older_than_keys(table: LakeTable, number: int, start: int, end: int, keys: pa.Table) -> int:
    """Return how many rows of the offsets ``[start, end)`` have one of these keys. Memory: the keys of one file."""
    count = 0
    for file in table.data_files(table.between(number, start, end)):
        rows = keyed_rows(table, file, number)
        offsets = rows.column("offset")
        rows = rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
        count += rows.join(keys, keys.column_names, join_type="left semi", use_threads=False).num_rows
    return count
