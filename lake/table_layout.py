"""Divides rows into the files of a table: each file has rows of one partition of the table's spec, in its sort order.

Rows are divided as in `spill`. If the table has a sort order of its own, all rows are spilled, and a file has up to
`SORTED_BYTES` of rows, sorted in memory: this twice is the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TimeTransform
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from ..log.record_columns import as_column, numbers
from .columns import Columns
from .spill import divided

SORTED_BYTES = 256 * 2**20
"""The rows of a sorted file, at most, as they are in memory."""
ROW_GROUP_BYTES = 32 * 2**20
HOUR_US = 3_600_000_000
Key: TypeAlias = tuple[Any, ...]
"""The values of a partition's fields, as Iceberg's manifests have them."""
_FIELD_ID = b"PARQUET:field_id"


class Layout:
    """The current spec and sort order of a table. `is_sorted`: the order is another one than that of the log."""

    def __init__(self, metadata: TableMetadata, columns: Columns) -> None:
        self._schema, self._spec = metadata.schema(), metadata.spec()
        order = metadata.sort_order_by_id(metadata.default_sort_order_id)
        self._order = [] if order is None else [field.source_id for field in order.fields]
        by_log = [self._schema.find_field(columns.column(name)).field_id for name in ("partition", "offset")]
        self.is_sorted = self._order not in ([], by_log)
        self._by_log = by_log

    def files(
        self,
        rows: Iterable[pa.Table],
        most: int | None = SORTED_BYTES,
        keep: Callable[[pa.Table], pa.Table] | None = None,
    ) -> Generator[tuple[Key, Iterator[pa.Table]], None, None]:
        """Yield each file: its partition, and its row groups, which must be read before the next file is requested.

        ``rows``: in the table's schema, and in order of offset. ``most``: bytes of a sorted file; None is no bound.
        ``keep``: chooses rows once all have been read; then all are spilled first.
        """
        spills = self.is_sorted or keep is not None
        groups = (group for group in rows if group.num_rows)
        with closing(divided(groups, self.parts, streams=not spills)) as files:
            for key, waiting in files:
                chosen = waiting if keep is None else map(keep, waiting)
                if not self.is_sorted:
                    yield key, grouped(chosen)
                    continue
                for file in grouped(chosen, most):
                    yield key, sliced(self.sorted(file))

    def parts(self, rows: pa.Table) -> list[tuple[Key, pa.Table]]:
        """Return the rows of each partition, in the order in which the partitions occur. There must be a row."""
        codes, keys = np.zeros(rows.num_rows, np.int64), [()]
        for field in self._spec.fields:
            values, indices = _transformed(rows, self._schema, field)
            pairs, codes = np.unique(codes * len(values) + indices, return_inverse=True)
            keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in pairs]
        if len(keys) == 1:
            return [(keys[0], rows)]
        _, first = np.unique(codes, return_index=True)
        return [(keys[code], rows.take(as_column(np.flatnonzero(codes == code)))) for code in np.argsort(first)]

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Return the rows in the table's sort order, and rows that are equal there in the order of the log."""
        columns = [column_by_id(rows, field_id) for field_id in (*self._order, *self._by_log)]
        names = [str(at) for at in range(len(columns))]
        order = pc.sort_indices(pa.table(columns, names=names), [(name, "ascending", "at_start") for name in names])
        return rows.take(order)


def _transformed(rows: pa.Table, schema: Schema, field: PartitionField) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values of a partition field, and for each row the index of its value."""
    source, column = schema.find_field(field.source_id).field_type, column_by_id(rows, field.source_id)
    if isinstance(source, (TimestampType, TimestamptzType)):
        column = column.cast(pa.int64())
        if isinstance(field.transform, TimeTransform):  # so that there are few values: no partition divides an hour
            hours = numbers(column.fill_null(0), np.int64) // HOUR_US * HOUR_US
            column = pc.if_else(column.is_valid(), as_column(hours), None)
    elif isinstance(source, DateType):
        column = column.cast(pa.int32())
    encoded = column.dictionary_encode("encode")
    transform = field.transform.transform(source)
    by_value: dict[Any, int] = {}
    indices = [
        by_value.setdefault(None if value is None else transform(value), len(by_value))
        for value in encoded.dictionary.to_pylist()
    ]
    return list(by_value), np.array(indices, np.int64)[numbers(encoded.indices, np.int32)]


def column_by_id(rows: pa.Table, field_id: int) -> pa.Array:
    """Return a column, or a field of a struct, by its Iceberg id. A field of a null struct is null."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if (array := _by_id(field, column, field_id)) is not None:
            return array
    raise KeyError(field_id)


def _by_id(field: pa.Field, column: pa.ChunkedArray, field_id: int) -> pa.Array | None:
    if (field.metadata or {}).get(_FIELD_ID) == b"%d" % field_id:
        return column.combine_chunks()
    if pa.types.is_struct(field.type):
        flat = column.combine_chunks().flatten()
        for inner, values in zip(field.type, flat, strict=True):
            if (array := _by_id(inner, pa.chunked_array([values]), field_id)) is not None:
                return array
    return None


def grouped(parts: Iterable[pa.Table], group_bytes: int | None = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Yield the same rows in tables of one chunk, of about ``group_bytes`` bytes in memory. No table is empty."""
    waiting, size = [], 0
    for part in parts:
        if part.num_rows:
            waiting.append(part)
            size += part.nbytes
        if group_bytes is not None and size >= group_bytes:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def sliced(rows: pa.Table, group_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Yield the rows in tables of about ``group_bytes`` bytes in memory."""
    step = max(1, rows.num_rows * group_bytes // max(1, rows.nbytes))
    yield from (rows.slice(at, step) for at in range(0, rows.num_rows, step))
