"""Rows as a table has them: out of its files, as its columns are now, and beside each other.

A file that was written before a field was added has null there; one that was written before a type was widened has its
values in the wider one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from .table import LakeTable


def rows_of_file(table: LakeTable, file: DataFile, start: int = 0, end: int = 2**63) -> Iterator[pa.Table]:
    """Row group by row group, in the schema of the table. Memory: one.

    Row groups without an offset of ``[start, end)`` are left out. Not by pyiceberg's own scan, which shows the headers
    of a record that has none as an empty list.
    """
    with table.opened(file.file_path) as source:
        found = pq.ParquetFile(source)
        leaf = next(at for at in range(found.metadata.num_columns) if found.schema.column(at).path == "offset")
        for at in range(found.num_row_groups):
            told = found.metadata.row_group(at).column(leaf).statistics
            if told is None or not told.has_min_max or (told.max >= start and told.min < end):
                yield aligned(found.read_row_group(at), table.schema)


def rows_between(table: LakeTable, partition: int, start: int, end: int) -> pa.Table:
    """The rows of these offsets, by offset, in the schema of the table."""
    found = [table.schema.empty_table()]
    for file in table.data_files(between(partition, start, end)):
        for rows in rows_of_file(table, file, start, end):
            offsets = rows.column("offset")
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            found.append(of_partition(rows.filter(inside), partition))
    rows = pa.concat_tables(found)
    return rows.take(pc.sort_indices(rows.column("offset")))


def of_partition(rows: pa.Table, partition: int) -> pa.Table:
    """Return the rows of one Kafka partition."""
    return rows.filter(pc.equal(rows.column("partition"), partition))


def between(partition: int, start: int, end: int) -> str:
    """As a condition on rows."""
    return f"partition == {partition} and offset >= {start} and offset < {end}"


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows in this schema: columns and fields by their names, null where ``rows`` have none, wider types."""
    columns = [
        rows.column(each.name).cast(each.type) if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def first_difference(these: pa.Table, those: pa.Table) -> tuple[str, int] | None:
    """The first column that is not the same in both, and the first row where. Both: as many rows, one schema."""
    for name in these.column_names:
        one, other = these.column(name).combine_chunks(), those.column(name).combine_chunks()
        if not same(one, other):
            return name, next(at for at in range(len(one)) if not same(one.slice(at, 1), other.slice(at, 1)))
    return None


def same(these: pa.Array, those: pa.Array) -> bool:
    """Of one type: the same values, null where null is, floating ones by their bits: NaN is NaN."""
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
