"""Rows as a table has them: read from its files with its present columns, and compared with each other.

A file that was written before a field was added has null there; one that was written before a type was widened has
its values in the wider type.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from .table import LakeTable


def rows_of_file(table: LakeTable, file: DataFile, start: int = 0, end: int = 2**63) -> Iterator[pa.Table]:
    """Yield row group by row group, in the schema of the table. Memory: one group.

    Row groups without an offset of ``[start, end)`` are left out. pyiceberg's own scan is not used: it shows the
    headers of a record that has none as an empty list.
    """
    with table.opened(file.file_path) as source:
        parquet = pq.ParquetFile(source)
        leaf = next(at for at in range(parquet.metadata.num_columns) if parquet.schema.column(at).path == "offset")
        for at in range(parquet.num_row_groups):
            statistics = parquet.metadata.row_group(at).column(leaf).statistics
            if statistics is None or not statistics.has_min_max or (statistics.max >= start and statistics.min < end):
                yield aligned(parquet.read_row_group(at), table.schema)


def rows_between(table: LakeTable, partition: int, start: int, end: int) -> pa.Table:
    """Return the rows of these offsets, by offset, in the schema of the table."""
    tables = [table.schema.empty_table()]
    for file in table.data_files(between(partition, start, end)):
        for rows in rows_of_file(table, file, start, end):
            offsets = rows.column("offset")
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            tables.append(of_partition(rows.filter(inside), partition))
    rows = pa.concat_tables(tables)
    return rows.take(pc.sort_indices(rows.column("offset")))


def of_partition(rows: pa.Table, partition: int) -> pa.Table:
    """Return the rows of one Kafka partition."""
    return rows.filter(pc.equal(rows.column("partition"), partition))


def between(partition: int, start: int, end: int) -> str:
    """Return a condition for the rows of these offsets."""
    return f"partition == {partition} and offset >= {start} and offset < {end}"


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same rows in this schema: columns and fields by name, null where ``rows`` have none, wider types."""
    columns = [
        rows.column(each.name).cast(each.type) if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def first_difference(these: pa.Table, those: pa.Table) -> tuple[str, int] | None:
    """Return the first column that differs, and its first row that does. Both have as many rows, and one schema."""
    for name in these.column_names:
        one, other = these.column(name).combine_chunks(), those.column(name).combine_chunks()
        if not same(one, other):
            return name, next(at for at in range(len(one)) if not same(one.slice(at, 1), other.slice(at, 1)))
    return None


def same(these: pa.Array, those: pa.Array) -> bool:
    """Return whether two arrays of one type have the same values and nulls; floating ones by their bits: NaN is NaN."""
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
