"""Writes rows into new files of a table, and reads the files. Each file has rows of one Kafka partition.

A file's name has the id of its attempt, so no two writers ever write the same file. Files that an attempt leaves behind
are in no snapshot. Rows are read with the table's current columns. A file older than an added field has null for the
field. A file older than a widened type has its values in the wider type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from ..runtime.operation import Operation
from ..state.offsets import Extent, Offset
from .columns import Rows, aligned, within_years
from .jobs import Task
from .names import table_file
from .parquet import DELTAS, ParquetFile, finished_files, row_groups
from .table import LakeTable
from .table_layout import ROW_GROUP_BYTES, SORTED_BYTES


@dataclass
class Attempt:
    """The work of one writer for one commit. ``files``: written files, which the table has once the commit succeeded.
    ``corrupt``: how many of ``rows`` have a key or value that does not parse. ``dropped``: rows in files that the
    commit removes. ``kept``: how many of ``rows`` an upsert wrote again, as they were.
    """

    id: str
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    corrupt: int = 0
    kept: int = 0

    def add(self, part: Attempt) -> None:
        """Add the files of a task."""
        self.files += part.files
        self.rows += part.rows
        self.corrupt += part.corrupt


class Newest(Protocol):
    """Chooses the rows of an upsert, once it has all records."""

    def add(self, made_by: Rows, records: pa.Table) -> pa.Table:
        """Return the rows of records, in the table's schema."""

    def of(self, rows: pa.Table) -> pa.Table:
        """Return those of the rows that remain. Call it after the last `add`."""


def write_rows(
    table: LakeTable,
    attempt: Attempt,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    made_by: Rows,
    newest: Newest | None = None,
) -> Operation[None]:
    """Write the records of a task into files. ``batches``: exactly these records, decoded, with headers.

    ``newest``: gets all records, and only its rows are written. Raises the errors of ``batches`` and ``made_by``, and
    DiskFull.
    """
    before, schema = made_by.corrupt, table.schema
    groups = row_groups(map(within_years, batches), ROW_GROUP_BYTES)
    if newest is None:
        rows = (aligned(made_by.of(group), schema) for group in groups)
    else:
        rows = (newest.add(made_by, group) for group in groups)
    keep = None if newest is None else newest.of
    yield from put_rows(table, attempt, partial(table_file, attempt.id, task), rows, SORTED_BYTES, keep)
    attempt.corrupt += made_by.corrupt - before


def put_rows(
    table: LakeTable,
    attempt: Attempt,
    name: Callable[[int], str],
    rows: Iterable[pa.Table],
    most: int | None,
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> Operation[None]:
    """Write rows of one Kafka partition into files, as `Layout.files` divides them. ``name`` gets a file's number."""
    deltas = tuple(map(table.column, DELTAS))
    with (
        closing(table.layout.files(rows, most, keep)) as files,
        closing(finished_files(files, lambda: ParquetFile(table.schema, deltas))) as finished,
    ):
        for number, (key, file) in enumerate(finished):
            url = table.url(name(number))
            yield f"put {url}"
            attempt.files.append(entry := table.put(url, file.pieces(), key))
            attempt.rows += entry.record_count


def give_back(table: LakeTable, attempt: Attempt) -> Operation[None]:
    """Remove the files of an attempt that did not succeed, and reset its counts."""
    for each in attempt.files:
        yield f"remove {each.file_path}"
        table.remove(each.file_path)
    attempt.files.clear()
    attempt.rows = attempt.dropped = attempt.corrupt = attempt.kept = 0


@contextmanager
def nothing_left(table: LakeTable, attempt: Attempt) -> Iterator[None]:
    """Remove the attempt's files if the block fails. The block must not send a commit that names them."""
    try:
        yield
    except Exception:
        for _ in give_back(table, attempt):
            pass
        raise


def partitions_of(table: LakeTable, file: DataFile) -> dict[int, Extent]:
    """Return the offsets (end exclusive) of each Kafka partition in a file. Reads a file of several partitions."""
    if (own := table.extent_of(file)) is not None:
        return dict([own])
    with table.opened(file.file_path) as source:
        rows = pq.read_table(source, columns=[table.source, table.column("offset")])
    rows = rows.rename_columns(["partition", "offset"])
    ranges = rows.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).sort_by("partition")
    return {
        row["partition"]: Extent(Offset(row["offset_min"]), Offset(row["offset_max"] + 1)) for row in ranges.to_pylist()
    }


def rows_of_file(table: LakeTable, file: DataFile) -> Iterator[pa.Table]:
    """Yield the row groups of a file one by one, in the schema of the table. Memory: one group.

    pyiceberg's own scan is not used, because it returns an empty list for a record without headers.
    """
    with table.opened(file.file_path) as source:
        parquet = pq.ParquetFile(source)
        for at in range(parquet.num_row_groups):
            yield aligned(parquet.read_row_group(at), table.schema)


def rows_between(table: LakeTable, partition: int, start: int, end: int) -> pa.Table:
    """Return the rows of the offsets ``[start, end)``, by offset, in the schema of the table."""
    tables = [table.schema.empty_table()]
    offset = table.column("offset")
    filters = [(table.source, "==", partition), (offset, ">=", start), (offset, "<", end)]
    for file in table.data_files(table.between(partition, start, end)):
        with table.opened(file.file_path) as source:
            tables.append(aligned(pq.read_table(source, filters=filters), table.schema))
    rows = pa.concat_tables(tables)
    return rows.take(pc.sort_indices(rows.column(offset)))


def of_partition(table: LakeTable, rows: pa.Table, partition: int) -> pa.Table:
    """Return the rows of one Kafka partition."""
    return rows.filter(pc.equal(rows.column(table.source), partition))
