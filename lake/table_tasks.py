"""Makes a commit's files by tasks elsewhere: processes of this machine, or executors of Spark. The driver commits.

    splits of one commit  ->  a job each  ->  files of the table  ->  their manifest entries  ->  commit

A task that is done twice, because its executor was lost or was slow, writes other files each time, for their names
belong to one run of it. The driver commits the files that were reported to it; the others are in no snapshot, and
`compact` removes them a day later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from ..app.split_reads import Access
from ..fetch.packed_splits import SplitWriter
from ..leader.act import Act, run
from ..runtime.id_source import RandomIds
from ..state.errors import TierstateError
from ..state.ids import FactId
from ..state.offsets import Extent
from ..values.schema_registry import RegistryAccess
from .any_job import AnyRun
from .columns import Columns, ColumnsGrown
from .jobs import records_of
from .kept import Keep
from .plan import ExportTask
from .table import LakeTable
from .table_commit import Splits, Write
from .table_facts import TableFacts
from .table_files import Attempt, nothing_left, write_rows
from .table_log import TopicLog
from .table_place import PLACE

FORGOTTEN: dict[str, Any] = {
    "current_snapshot_id": None,
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "statistics": [],
}
"""Parts of a table's metadata that no task needs: there may be thousands of snapshots."""


@dataclass(frozen=True, slots=True)
class ShippedTable:
    """A table as a task needs it: where its files go and how they are written; credentials included."""

    name: tuple[str, ...]
    metadata: TableMetadata
    io: FileIO
    facts: TableFacts
    registry: RegistryAccess | None

    def opened(self) -> LakeTable:
        return LakeTable(Table(self.name, self.metadata, "", self.io, NoopCatalog("")), self.facts, self.registry)


def shipped(table: LakeTable) -> ShippedTable:
    iceberg = table.iceberg
    metadata = iceberg.metadata.model_copy(update={**FORGOTTEN, "properties": _shipped(iceberg.metadata.properties)})
    io = type(iceberg.io)(_shipped(iceberg.io.properties))  # it has the table's properties too
    return ShippedTable(iceberg.name(), metadata, io, table.facts, table.registry)


def _shipped(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without the table's place, which grows and which no task reads."""
    return {name: value for name, value in properties.items() if name != PLACE}


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a task."""

    files: tuple[DataFile, ...]
    rows: int
    corrupt: int


@dataclass(frozen=True, slots=True)
class TableJob:
    """One split's rows into files of an attempt."""

    table: ShippedTable
    attempt: str
    task: ExportTask
    split: bytes
    access: Access

    @property
    def number(self) -> int:
        return self.task.number

    def made(self) -> Written | Columns:
        """Write the rows. Columns as a result: those that the table must grow to first."""
        # of this run of the task alone: a lost executor may have left a file, or still be writing it
        mine = Attempt(f"{self.attempt}-{FactId.of(RandomIds().uuid())}")
        table = self.table.opened()
        made_by = table.new_rows()
        try:
            with records_of(self.split, self.access) as batches, nothing_left(table, mine):
                run(write_rows(table, mine, self.task, batches, made_by))
        except ColumnsGrown as grown:
            return grown.columns
        return Written(tuple(mine.files), mine.rows, made_by.corrupt)


def by_tasks(run_jobs: AnyRun, access: Access, keep: Keep) -> Write:
    """Return a `Write` by tasks. ``keep`` is called as tasks end: a commit may take hours. Raises as tasks do."""

    def write(table: LakeTable, log: TopicLog, attempt: Attempt, splits: Splits) -> Act[None]:
        ranges = {number: Extent(parts[0].start, parts[-1].end) for number, parts in splits.items()}
        form = shipped(table)
        tasks = [(number, split) for number, parts in splits.items() for split in parts]
        jobs = [
            TableJob(
                form,
                attempt.id,
                ExportTask(at, number, split.start, split.end),
                SplitWriter().packed([split]),
                access,
            )
            for at, (number, split) in enumerate(tasks)
        ]
        yield f"do {len(jobs)} tasks"
        for _, outcome in run_jobs(jobs):
            if isinstance(outcome, TierstateError):
                raise outcome
            if isinstance(outcome, Columns):
                raise ColumnsGrown(outcome)
            attempt.files += outcome.files
            attempt.rows += outcome.rows
            attempt.corrupt += outcome.corrupt
            keep(ranges)

    return write
