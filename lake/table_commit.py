"""The acts that change a table. Each is one commit: rows are added or removed, together with the new place.

    files of its own  ->  manifests  ->  commit, if the table is still as it was read  ->  the table's
                                         another was first  ->  own files removed, place read again

A writer may die before any of these steps: until the commit the table is as it was, and no snapshot names what was
written. The outcome of its commit may be unknown: the place shows whether it landed, and the next round begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from ..fetch.planned_split import PlannedSplit
from ..leader.act import Act
from ..state.offsets import Extent, Offset
from .plan import ExportTask
from .table import Change, LakeTable
from .table_files import (
    Attempt,
    day_folder,
    give_back,
    grouped,
    nothing_left,
    partitions_of,
    rewrite,
    write_rows,
)
from .table_log import TopicLog
from .table_place import TablePlace
from .table_rows import between, of_partition, rows_of_file

Splits: TypeAlias = Mapping[int, list[PlannedSplit]]
"""The splits of each partition, in the order of offsets."""
Write: TypeAlias = Callable[[LakeTable, TopicLog, Attempt, Splits], Act[None]]
"""Makes the attempt's files of the records of splits. An act; files that it leaves when it fails are in no snapshot."""


def append(
    table: LakeTable, log: TopicLog, attempt: Attempt, place: TablePlace, splits: Splits, write: Write
) -> Act[bool]:
    """Add the records of ``splits``, and set the place that they bring the table to. False: another writer was first,
    or the log changed its lineage while it was read. Raises ColumnsGrown, and then leaves nothing.
    """
    lineages = {number: log.lineage(number) for number in splits}
    with nothing_left(table, attempt):
        yield from write(table, log, attempt, splits)
        if any(log.lineage(number) != before for number, before in lineages.items()):
            yield from give_back(table, attempt)
            return False
    return (yield from commit(table, attempt, Change(place, tuple(attempt.files))))


def write_here(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Act[None]:
    """Write the files in this process, one split after another."""
    made_by = table.new_rows()
    for number, parts in splits.items():
        for at, split in enumerate(parts):
            with closing(log.read(split)) as batches:
                task = ExportTask(at, number, split.start, split.end)
                yield from write_rows(table, attempt, task, batches, made_by)
    attempt.corrupt = made_by.corrupt


def take_out(table: LakeTable, attempt: Attempt, place: TablePlace, ranges: Mapping[int, Extent]) -> Act[bool]:
    """Remove the rows of these offsets (end exclusive), by partition. Files with no other rows are dropped whole.

    A file of several partitions, which another engine wrote, becomes one file for each partition.
    """
    drop: dict[str, DataFile] = {}
    with nothing_left(table, attempt):
        for number, (start, end) in ranges.items():
            if start < end:
                drop |= {file.file_path: file for file in table.data_files(between(number, start, end))}
        for file in drop.values():
            for number, (first, end_of_file) in partitions_of(table, file).items():
                start, end = ranges.get(number, Extent(first, first))
                if first >= start and end_of_file <= end:
                    continue
                rows = (of_partition(each, number) for each in rows_of_file(table, file))
                remaining = grouped(_without(each, start, end) for each in rows)
                name = f"{day_folder(file)}/{attempt.id}-{number:05d}-{first:020d}-kept.parquet"
                yield from rewrite(table, attempt, name, remaining)
    attempt.dropped = sum(file.record_count for file in drop.values())
    return (yield from commit(table, attempt, Change(place, tuple(attempt.files), tuple(drop.values()))))


def commit(table: LakeTable, attempt: Attempt, change: Change) -> Act[bool]:
    """Return False where another was first; its files are removed. Raises UnknownOutcome, and then leaves them."""
    with nothing_left(table, attempt):
        yield "write manifests"
        transaction = table.prepared(change, attempt.id)
    yield "commit"
    landed = table.commit(transaction, attempt.id)  # from here on the rows are the table's, and its place includes them
    if not landed:
        yield from give_back(table, attempt)
    return landed


def first_splits(parts: list[PlannedSplit], count: int) -> list[PlannedSplit]:
    return list(islice(parts, max(1, count)))


def _without(rows: pa.Table, start: Offset, end: Offset) -> pa.Table:
    offsets = rows.column("offset")
    return rows.filter(pc.or_(pc.less(offsets, int(start)), pc.greater_equal(offsets, int(end))))
