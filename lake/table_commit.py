"""The acts that change a table, each of them one commit: rows come, or rows go, and the place says so in the same step.

    files of its own  ->  manifests  ->  commit, if the table is still as it was read  ->  the table's
                                         another was first  ->  own files removed, place read again

A writer may die before any of these steps: until the commit the table is as it was, and what was written is named by no
snapshot. It may be told nothing about its commit: the place says whether it landed, and the next round begins there.
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
"""By partition, each one's in the order of offsets."""
Write: TypeAlias = Callable[[LakeTable, TopicLog, Attempt, Splits], Act[None]]
"""Makes the attempt's files of the records of splits. An act; what it leaves when it fails is named by no snapshot."""


def append(
    table: LakeTable, log: TopicLog, attempt: Attempt, place: TablePlace, splits: Splits, write: Write
) -> Act[bool]:
    """The records of ``splits``, and the place where they bring the table to. False: another was first, or the log
    changed its lineage meanwhile. Raises ColumnsGrown, and leaves nothing then.
    """
    lineages = {number: log.lineage(number) for number in splits}
    with nothing_left(table, attempt):
        yield from write(table, log, attempt, splits)
        if any(log.lineage(number) != known for number, known in lineages.items()):
            yield from give_back(table, attempt)
            return False
    return (yield from commit(table, attempt, Change(place, tuple(attempt.files))))


def write_here(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Act[None]:
    """In this process, one split after another."""
    made_by = table.new_rows()
    for number, parts in splits.items():
        for at, split in enumerate(parts):
            with closing(log.read(split)) as batches:
                task = ExportTask(at, number, split.start, split.end)
                yield from write_rows(table, attempt, task, batches, made_by)
    attempt.corrupt = made_by.corrupt


def take_out(table: LakeTable, attempt: Attempt, place: TablePlace, ranges: Mapping[int, Extent]) -> Act[bool]:
    """The rows of these offsets (end exclusive), by partition. Files that hold no others go whole.

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
                kept = grouped(_without(each, start, end) for each in rows)
                name = f"{day_folder(file)}/{attempt.id}-{number:05d}-{first:020d}-kept.parquet"
                yield from rewrite(table, attempt, name, kept)
    attempt.dropped = sum(file.record_count for file in drop.values())
    return (yield from commit(table, attempt, Change(place, tuple(attempt.files), tuple(drop.values()))))


def commit(table: LakeTable, attempt: Attempt, change: Change) -> Act[bool]:
    """False: another was first; what was written is removed. Raises UnknownOutcome, and leaves it then."""
    with nothing_left(table, attempt):
        yield "write manifests"
        transaction = table.prepared(change, attempt.id)
    yield "commit"
    landed = table.commit(transaction, attempt.id)  # from here on the rows are the table's, and its place says so
    if not landed:
        yield from give_back(table, attempt)
    return landed


def first_splits(parts: list[PlannedSplit], count: int) -> list[PlannedSplit]:
    return list(islice(parts, max(1, count)))


def _without(rows: pa.Table, start: Offset, end: Offset) -> pa.Table:
    offsets = rows.column("offset")
    return rows.filter(pc.or_(pc.less(offsets, int(start)), pc.greater_equal(offsets, int(end))))
