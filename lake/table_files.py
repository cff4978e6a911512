"""Writes rows into new files of a table, and reads its files: each has one partition and one day, by offset.

A file's name is its attempt's own, so no two writers ever write the same file; files that an attempt leaves behind are
in no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from ..leader.act import Act
from ..state.offsets import Extent, Offset
from .columns import Rows
from .encodings import WRITER
from .file_bounds import bounds_of, single_partition
from .names import day_name
from .parquet import ParquetFile
from .parted import laid_out
from .plan import ExportPlan, ExportTask, Shape
from .table import LakeTable
from .table_rows import aligned
from .table_times import within_years

ROW_GROUP_BYTES = 32 * 2**20


@dataclass
class Attempt:
    """The work of one writer for one commit. ``files``: written, and the table's once the commit landed. ``corrupt``:
    those of ``rows`` whose key or value does not parse. ``dropped``: rows of files that the commit removes.
    """

    id: str
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    corrupt: int = 0


def write_rows(
    table: LakeTable, attempt: Attempt, task: ExportTask, batches: Iterable[pa.RecordBatch], made_by: Rows
) -> Act[None]:
    """Write the records of a task as files by day. ``batches``: as `parted.laid_out` takes them.

    Raises what ``batches`` and ``made_by`` raise, and DiskFull.
    """
    shape = Shape(table.facts.columns, table.facts.isolation, ROW_GROUP_BYTES, WRITER)
    plan = ExportPlan(table.facts.topic, table.facts.topic_id, 0, shape, ())
    making: dict[str, ParquetFile] = {}
    with ExitStack() as stack:
        for group in laid_out(plan, task, map(within_years, batches)):
            if group.records is not None:
                if group.key not in making:
                    making[group.key] = begun = ParquetFile(table.schema, {})
                    stack.callback(begun.close)
                making[group.key].write(aligned(made_by.of(group.records), table.schema))
                continue
            day, _, name = group.key.rpartition("/")
            yield from _put(table, attempt, f"{day.rpartition('/')[2]}/{attempt.id}-{name}", making.pop(group.key))


def rewrite(table: LakeTable, attempt: Attempt, name: str, groups: Iterable[pa.Table]) -> Act[None]:
    """Write rows of one partition and day, by offset and in the table's schema, as one file: each of ``groups`` is a
    row group. Without rows no file is written.
    """
    output, count = ParquetFile(table.schema, {}), 0
    with ExitStack() as stack:
        stack.callback(output.close)
        for rows in groups:
            output.write(rows)
            count += rows.num_rows
        if count:
            yield from _put(table, attempt, name, output)


def grouped(parts: Iterable[pa.Table], group_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Yield the same rows, in groups of one chunk each, of about so many bytes in memory. No group is empty."""
    waiting, size = [], 0
    for each in parts:
        if each.num_rows:
            waiting.append(each)
            size += each.nbytes
        if size >= group_bytes:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def give_back(table: LakeTable, attempt: Attempt) -> Act[None]:
    """Remove the files of an attempt that did not land."""
    for each in attempt.files:
        yield f"remove {each.file_path}"
        table.remove(each.file_path)
    attempt.files.clear()
    attempt.rows = attempt.dropped = attempt.corrupt = 0


@contextmanager
def nothing_left(table: LakeTable, attempt: Attempt) -> Iterator[None]:
    """Remove the attempt's files when the block fails: no commit that names them was sent yet."""
    try:
        yield
    except Exception:
        for _ in give_back(table, attempt):
            pass
        raise


def day_folder(file: DataFile) -> str:
    """Return the folder of a file's day, as in ``date=2026-11-24``."""
    return f"date={day_name(file.partition[0])}"


def _put(table: LakeTable, attempt: Attempt, name: str, made: ParquetFile) -> Act[None]:
    made.finish()
    url = table.url(name)
    yield f"put {url}"
    attempt.files.append(file := table.put(url, made.pieces()))
    attempt.rows += file.record_count
    made.close()


def partitions_of(table: LakeTable, file: DataFile) -> dict[int, Extent]:
    """Return the offsets (end exclusive) of each Kafka partition in a file. A file of several partitions is read."""
    schema = table.iceberg.schema()
    number = single_partition(file, schema.find_field("partition").field_id)
    offset_id = schema.find_field("offset").field_id
    if number is not None and offset_id in file.lower_bounds:
        first, last = bounds_of(file, offset_id)
        return {number: Extent(Offset(first), Offset(last + 1))}
    with table.opened(file.file_path) as source:
        rows = pq.read_table(source, columns=["partition", "offset"])
    ranges = rows.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).sort_by("partition")
    return {
        row["partition"]: Extent(Offset(row["offset_min"]), Offset(row["offset_max"] + 1)) for row in ranges.to_pylist()
    }
