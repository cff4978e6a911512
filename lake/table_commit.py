"""The operations that change a table. Each is one commit, which adds or removes rows and sets the new place.

    new files  ->  manifests  ->  commit, if the table is still as it was read  ->  the table has the rows
                                  another writer was first  ->  new files removed, place read again

A writer may die before any of these steps. Until the commit the table is unchanged, and no snapshot names the new
files. If the outcome of a commit is unknown, the place shows whether it succeeded, and the next round begins there.

New rows are written in this process, or in other processes by a job for each split. Only the driver commits. A task
runs twice if its executor was lost or slow, and each run writes files with names of its own. The driver commits the
files that were reported to it. No snapshot names the others; `tierstate table compact` removes them a day later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from ..fetch.planned_split import PlannedSplit
from ..runtime.id_source import RandomIds
from ..runtime.operation import Operation, run
from ..state.errors import InvalidRequest, TierstateError
from ..state.ids import FactId
from ..state.offsets import Extent
from ..values.evolution import evolved
from ..values.form import Form
from ..values.schema_registry import RegistryAccess
from .columns import Columns, ColumnsGrown
from .jobs import Job, Task
from .log import TopicLog
from .names import rewritten_file
from .runs import Run
from .table import Change, LakeTable
from .table_facts import iceberg_schema
from .table_files import (
    Attempt,
    give_back,
    nothing_left,
    of_partition,
    partitions_of,
    put_rows,
    rows_of_file,
    write_rows,
)
from .table_place import PLACE, TablePlace
from .table_shape import UNPARTITIONED, TableShape, shape_text

Splits: TypeAlias = Mapping[int, list[PlannedSplit]]
"""The splits of each partition, in order of offset."""
Write: TypeAlias = Callable[[LakeTable, TopicLog, Attempt, Splits], Operation[None]]
"""Writes the records of the splits into files of the attempt. If it fails, files that remain are in no snapshot."""
FORGOTTEN: dict[str, Any] = {
    "current_snapshot_id": None,
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "statistics": [],
}
"""Empty values for parts of a table's metadata that no task needs: there may be thousands of snapshots."""


def commit(table: LakeTable, attempt: Attempt, change: Change) -> Operation[bool]:
    """Commit. If another writer was first, remove the files and return False. UnknownOutcome keeps the files."""
    with nothing_left(table, attempt):
        yield "write manifests"
        transaction = table.prepared(change, attempt.id)
    yield "commit"
    landed = table.commit(transaction, attempt.id)  # from here on the rows are the table's, and its place includes them
    if not landed:
        yield from give_back(table, attempt)
    return landed


def take_out(table: LakeTable, attempt: Attempt, place: TablePlace, ranges: Mapping[int, Extent]) -> Operation[bool]:
    """Remove the rows of these offsets (end exclusive), by partition. Files without other rows are not rewritten.

    A file of several partitions, which another engine wrote, becomes one file for each partition. Returns as `commit`.
    """
    drop: dict[str, DataFile] = {}
    with nothing_left(table, attempt):
        for number, (start, end) in ranges.items():
            if start < end:
                drop |= {file.file_path: file for file in table.data_files(table.between(number, start, end))}
        for file in drop.values():
            if not all(extent.within(ranges.get(number)) for number, extent in partitions_of(table, file).items()):
                yield from rewrite_without(table, attempt, file, partial(_rest, table, ranges))
    attempt.dropped = sum(file.record_count for file in drop.values())
    return (yield from commit(table, attempt, Change(place, tuple(attempt.files), tuple(drop.values()))))


def _rest(table: LakeTable, ranges: Mapping[int, Extent], number: int, rows: pa.Table) -> pa.Table:
    if (gone := ranges.get(number)) is None:
        return rows
    offsets = rows.column(table.column("offset"))
    return rows.filter(pc.or_(pc.less(offsets, int(gone.start)), pc.greater_equal(offsets, int(gone.end))))


def rewrite_without(
    table: LakeTable, attempt: Attempt, file: DataFile, rest: Callable[[int, pa.Table], pa.Table]
) -> Operation[None]:
    """Write the rows of a file again, as files of one Kafka partition each. ``rest`` returns which of a partition's
    rows remain.
    """
    for number, (first, _) in partitions_of(table, file).items():
        parts = (of_partition(table, group, number) for group in rows_of_file(table, file))
        names = partial(rewritten_file, attempt.id, number, first, "kept")
        yield from put_rows(table, attempt, names, (rest(number, part) for part in parts), None)


def write_here(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Operation[None]:
    """Write the files in this process, one split after another."""
    made_by = table.new_rows()
    for task, split in tasks_of(splits):
        with closing(log.read(split)) as batches:
            yield from write_rows(table, attempt, task, batches, made_by)


def by_tasks(run_jobs: Run) -> Write:
    """Return a `Write` that runs a job for each split. It raises the errors of the jobs."""

    def write(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Operation[None]:
        work = TableWork.of(table, attempt)
        jobs = [Job(task, split, log.access, work) for task, split in tasks_of(splits)]
        yield f"do {len(jobs)} tasks"
        for _, outcome in run_jobs(jobs):
            if isinstance(outcome, TierstateError):
                raise outcome
            if isinstance(outcome, Columns):
                raise ColumnsGrown(outcome)
            attempt.add(outcome)

    return write


def tasks_of(splits: Splits) -> Iterator[tuple[Task, PlannedSplit]]:
    """Yield a task for each split."""
    pairs = [(partition, split) for partition, parts in splits.items() for split in parts]
    for number, (partition, split) in enumerate(pairs):
        yield Task(number, partition, split.start, split.end), split


@dataclass(frozen=True, slots=True)
class TableWork:
    """The parts of a table that a task needs to write files of one attempt, including credentials."""

    attempt: str
    name: tuple[str, ...]
    metadata: TableMetadata
    io: FileIO
    registry: RegistryAccess | None

    @classmethod
    def of(cls, table: LakeTable, attempt: Attempt) -> TableWork:
        iceberg = table.iceberg
        properties = _shipped(iceberg.metadata.properties)
        metadata = iceberg.metadata.model_copy(update={**FORGOTTEN, "properties": properties})
        io = type(iceberg.io)(_shipped(iceberg.io.properties))  # the file access has the table's properties too
        return cls(attempt.id, iceberg.name(), metadata, io, table.registry)

    def outcome(self, task: Task, split: PlannedSplit, batches: Iterator[pa.RecordBatch]) -> Attempt | Columns:
        """Write the rows. Returns columns instead if the table must first grow to them."""
        table = LakeTable(Table(self.name, self.metadata, "", self.io, NoopCatalog("")), self.registry)
        # a new id for each run of the task: a lost executor may have left a file, or may still be writing it
        mine = Attempt(f"{self.attempt}-{FactId.of(RandomIds().uuid())}")
        made_by = table.new_rows()
        try:
            with nothing_left(table, mine):
                run(write_rows(table, mine, task, batches, made_by))
        except ColumnsGrown as grown:
            return grown.columns
        return mine


def _shipped(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without the table's place, which grows and which no task reads."""
    return {name: value for name, value in properties.items() if name != PLACE}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One change of a field. ``before`` is its old type, or None if the field is added."""

    field: str
    before: str | None
    after: str


def require_settling(table: LakeTable, place: TablePlace, most: int) -> None:
    """Raise InvalidRequest if the columns evolved ``most`` times since the last row: they may never settle.

    The count comes from the table itself, so a restarted follower continues it.
    """
    used = max((reach.versions[-1].version for reach in place.partitions.values() if reach.versions), default=0)
    if table.facts.version - used >= most:
        raise InvalidRequest(
            "the schema grows again whenever the columns have become it, and no row was written between; once it has"
            " settled, `tierstate table evolve` takes it, and the table goes on",
            table=table.name,
            topic=table.facts.topic,
            evolved=table.facts.version - used,
            most=most,
        )


def evolve_table(
    table: LakeTable,
    forms: Mapping[str, Form],
    attempt_id: Callable[[], str],
    *,
    execute: bool,
    shape: TableShape = UNPARTITIONED,
) -> list[FieldChange]:
    """Evolve `key` and `value` to these forms, and the table to this shape; return the changes. Raises InvalidRequest
    if that is impossible.
    """
    while True:
        columns = table.facts.columns
        for name, form in forms.items():
            columns = columns.with_form(name, evolved(columns.forms[name], form))
        changed = list(changes(table.facts.columns.schema(), columns.schema()))
        reshaped = list(_changes_of_shape(table, shape, columns))
        grown = None if columns == table.facts.columns else columns
        if not (grown or reshaped) or not execute:
            return changed + reshaped
        change = Change(table.place(), columns=grown, shape=shape if reshaped else None)
        if run(commit(table, Attempt(attempt_id()), change)):
            return changed + reshaped


def _changes_of_shape(table: LakeTable, shape: TableShape, columns: Columns) -> Iterator[FieldChange]:
    iceberg, schema = table.iceberg, iceberg_schema(columns.schema())
    before = shape_text(iceberg.spec(), iceberg.sort_order(), iceberg.schema())
    after = shape_text(shape.spec(schema, columns), shape.order(schema, columns), schema)
    for name, terms in (("partition_by", shape.partition_by), ("sort_by", shape.sort_by)):
        if terms is not None and before[name] != after[name]:
            yield FieldChange(name, before[name], after[name])


Fields: TypeAlias = pa.Schema | pa.StructType


def changes(before: Fields, after: Fields, path: str = "") -> Iterator[FieldChange]:
    """Yield the changes of fields. The names of nested fields have dots."""
    for each in after:
        name = f"{path}{each.name}"
        if each.name not in before.names:
            yield FieldChange(name, None, str(each.type))
        else:
            yield from _changes_of_type(before.field(each.name).type, each.type, name)


def _changes_of_type(before: pa.DataType, after: pa.DataType, name: str) -> Iterator[FieldChange]:
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        yield from changes(before, after, f"{name}.")
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _changes_of_type(before.value_type, after.value_type, f"{name}.element")
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _changes_of_type(before.item_type, after.item_type, f"{name}.value")
    elif before != after:
        yield FieldChange(name, str(before), str(after))
