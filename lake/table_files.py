"""Rows into new files of a table, and out of files that it has: each file is of one partition and one day, by offset.

A file's name is its attempt's own, so no two writers ever write the same one; what an attempt leaves behind is named by
no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from ..leader.act import Act
from ..log.record_block import record_schema
from ..state.errors import CorruptData, InvalidRequest
from .columns import Columns
from .names import date_of, day_name
from .parquet import WRITER, ParquetFile
from .parted import laid_out
from .plan import ExportPlan, ExportTask, Shape
from .row_groups import row_groups
from .table import LakeTable

ROW_GROUP_BYTES = 32 * 2**20


@dataclass
class Attempt:
    """What one writer makes for one commit. ``files``: written, and the table's once the commit landed."""

    id: str
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0


def write_rows(table: LakeTable, attempt: Attempt, task: ExportTask, batches: Iterable[pa.RecordBatch]) -> Act[None]:
    """The records of a task as files by day. ``batches``: as `parted.laid_out` takes them.

    Raises what ``batches`` do, DiskFull, and InvalidRequest for a record of no day that a table can name.
    """
    shape = Shape(Columns(table.facts.columns), table.facts.isolation, ROW_GROUP_BYTES, WRITER)
    plan = ExportPlan(table.facts.topic, table.facts.topic_id, 0, shape, ())
    making: dict[str, ParquetFile] = {}
    with ExitStack() as opened:
        for group in laid_out(plan, task, batches):
            if group.records is not None:
                _require_day(table, task.partition, group.key, group.records)
                if group.key not in making:
                    making[group.key] = begun = ParquetFile(table.schema, {})
                    opened.callback(begun.close)
                _add(table, making[group.key], group.records)
                continue
            day, _, name = group.key.rpartition("/")
            yield from _put(table, attempt, f"{day.rpartition('/')[2]}/{attempt.id}-{name}", making.pop(group.key))


def rewrite(table: LakeTable, attempt: Attempt, name: str, records: Iterable[pa.RecordBatch]) -> Act[str | None]:
    """Rows of one partition and day, by offset, as one file; its record digest. None: there were none."""
    made = ParquetFile(table.schema, {})
    with ExitStack() as opened:
        opened.callback(made.close)
        for group in row_groups(records, ROW_GROUP_BYTES):
            _add(table, made, group)
        if not made.records:
            return None
        yield from _put(table, attempt, name, made)
        return made.digest


def rows_of_file(table: LakeTable, file: DataFile, start: int = 0, end: int = 2**63) -> Iterator[pa.RecordBatch]:
    """As `log.decode` makes records; columns that the table does not have are null. Memory: a row group.

    Row groups without an offset of ``[start, end)`` are left out. Not by pyiceberg's own scan, which shows the headers
    of a record that has none as an empty list.
    """
    with table.opened(file.file_path) as source:
        found = pq.ParquetFile(source)
        leaf = next(at for at in range(found.metadata.num_columns) if found.schema.column(at).path == "offset")
        for at in range(found.num_row_groups):
            told = found.metadata.row_group(at).column(leaf).statistics
            if told is None or not told.has_min_max or (told.max >= start and told.min < end):
                yield from as_records(found.read_row_group(at))


def rows_between(table: LakeTable, partition: int, start: int, end: int) -> pa.Table:
    """The rows of these offsets, by offset, as `log.decode` makes records."""
    found = []
    for file in table.data_files(between(partition, start, end)):
        for batch in rows_of_file(table, file, start, end):
            offsets = batch.column("offset")
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            found.append(batch.filter(pc.and_(inside, pc.equal(batch.column("partition"), partition))))
    return pa.Table.from_batches(found, record_schema()).sort_by("offset")


def between(partition: int, start: int, end: int) -> str:
    """As a condition on rows."""
    return f"partition == {partition} and offset >= {start} and offset < {end}"


def as_records(rows: pa.Table) -> list[pa.RecordBatch]:
    """Rows of a table in the schema of `record_block.record_schema`."""
    schema = record_schema()
    columns = [
        rows.column(each.name).cast(each.type) if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return list(pa.table(columns, schema=schema).combine_chunks().to_batches())


def give_back(table: LakeTable, attempt: Attempt) -> Act[None]:
    """Removes what an attempt wrote that did not land."""
    for each in attempt.files:
        yield f"remove {each.file_path}"
        table.remove(each.file_path)
    attempt.files.clear()


@contextmanager
def nothing_left(table: LakeTable, attempt: Attempt) -> Iterator[None]:
    """What was written is removed when the block fails: no commit was sent yet that names it."""
    try:
        yield
    except Exception:
        for _ in give_back(table, attempt):
            pass
        raise


def day_folder(file: DataFile) -> str:
    """``date=2026-11-24``, of a file's rows."""
    return f"date={day_name(file.partition[0])}"


def _put(table: LakeTable, attempt: Attempt, name: str, made: ParquetFile) -> Act[None]:
    made.finish()
    url = table.url(name)
    yield f"put {url}"
    attempt.files.append(table.put(url, made.pieces()))
    attempt.rows += made.records
    made.close()


def _add(table: LakeTable, made: ParquetFile, records: pa.Table) -> None:
    schema = table.schema
    made.add(records, records.select(schema.names).cast(schema))


def _require_day(table: LakeTable, partition: int, key: str, records: pa.Table) -> None:
    """Of a row group of one day."""
    try:
        date.fromisoformat(date_of(key))
    except ValueError:
        raise InvalidRequest(
            "a record's time is of no day that a table can be partitioned by",
            table=table.name,
            topic=table.facts.topic,
            partition=partition,
            offset=records.column("offset")[0].as_py(),
        ) from None


def require_single(file: DataFile, table: LakeTable, partition_id: int) -> int:
    """The one Kafka partition of a file's rows. Raises CorruptData for a file of several: another engine wrote it."""
    lower, upper = file.lower_bounds.get(partition_id), file.upper_bounds.get(partition_id)
    if lower is None or lower != upper:
        raise CorruptData("a file of the table has rows of several partitions", table=table.name, file=file.file_path)
    return int.from_bytes(lower, "little", signed=True)
