"""Runs one task of an export: writes its records into files by date, puts the files, then commits the outcome.

The plan and the records determine each byte of a file. So a second run of a task, after a crash or concurrent, makes
the same files and finds those that exist. Until the task is committed, no process relies on any of its files.

Memory: one row group, decoded and encoded, and an upload's parts. Disk (the folder for temporary files): one file of
the task, and the records of its other dates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from ..fetch.planned_split import Skipped
from ..log.record_digest import RecordDigest
from ..runtime.operation import Operation
from ..state.errors import ObjectExists
from ..state.offsets import ByteRange, TimestampMs
from ..storage.object_store import ObjectReader, ObjectStore
from ..values.schema_registry import RegistryAccess
from .columns import Rows
from .export_ledger import Ledger, differs, given_up
from .export_plan import ExportedFile, ExportPlan, TaskDone
from .jobs import Task
from .names import day_name, file_key
from .parquet import ParquetFile, by_date, finished_files, row_groups
from .spill import divided


class DescribedFile(ParquetFile):
    """A file with the rows that ``rows`` makes of its records, and the data of the records for the ledger."""

    def __init__(self, schema: pa.Schema, rows: Rows) -> None:
        super().__init__(schema)
        self._rows, self._corrupt_before = rows, rows.corrupt
        self._groups: list[tuple[int, int, int, int]] = []
        """The first and last offset of each row group, and its earliest and latest timestamp in microseconds."""
        self._digest = RecordDigest()

    def add(self, records: pa.Table) -> None:
        """Add a row group with the rows of these records."""
        offsets, times = records.column("offset").chunk(0), records.column("timestamp").chunk(0).cast(pa.int64())
        earliest, latest = (each.as_py() for each in pc.min_max(times).values())
        self._groups.append((offsets[0].as_py(), offsets[-1].as_py(), earliest, latest))
        self._digest.update(records)
        super().add(self._rows.of(records))

    def described(self, plan: ExportPlan, task: Task, day: int) -> ExportedFile:
        """Return the ledger's entry for the finished file of a day."""
        size, sha256 = self.sha256()
        firsts, lasts, earliest, latest = zip(*self._groups, strict=True)
        return ExportedFile(
            key=file_key(plan, task, day),
            partition=task.partition,
            date=day_name(day),
            records=self._digest.count,
            first_offset=firsts[0],
            last_offset=lasts[-1],
            min_timestamp=TimestampMs(min(earliest) // 1000),
            max_timestamp=TimestampMs(max(latest) // 1000),
            bytes=size,
            sha256=sha256,
            digest=self._digest.hexdigest(),
            corrupt=self._rows.corrupt - self._corrupt_before,
        )


def export_task(
    plan: ExportPlan,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    ledger: Ledger,
    registry: RegistryAccess | None = None,
    skipped: tuple[Skipped, ...] = (),
) -> Operation[TaskDone]:
    """Run the task. ``batches``: the records, as `parquet.row_groups` takes them. Return the committed outcome.

    Raises the errors of the store and ``batches``, and DiskFull. Raises CorruptData if another run made other files,
    and InvalidRequest if the task was given up while it ran.
    """
    rows = Rows(plan.shape.columns, registry)
    schema = rows.schema.with_metadata(
        {"tierstate.topic_id": str(plan.topic_id), "tierstate.isolation": plan.shape.isolation.value}
    )
    files: list[ExportedFile] = []
    with (
        closing(divided(row_groups(batches, plan.shape.row_group_bytes), by_date)) as days,
        closing(finished_files(days, lambda: DescribedFile(schema, rows))) as finished,
    ):
        for day, file in finished:
            described = file.described(plan, task, day)
            yield f"put {described.key}"
            _put(ledger.place, described, file)
            files.append(described)
    outcome = TaskDone(task.number, tuple(sorted(files, key=lambda each: each.key)), skipped=skipped)
    yield "commit the task"
    if not ledger.commit(plan, outcome):
        for each in outcome.files:
            yield f"remove {each.key}"
            ledger.place.delete(each.key)
        raise given_up(plan)
    return outcome  # after the commit the task's records are exported, and no other run of it is needed


def _put(place: ObjectStore, described: ExportedFile, made: ParquetFile) -> None:
    try:
        place.put_stream(described.key, made.pieces())
    except ObjectExists:
        if sha256_of(place, described.key) != (described.bytes, described.sha256):
            raise differs(place, described.key) from None


def sha256_of(place: ObjectReader, key: str) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 (hex) of an object. Raises ObjectNotFound."""
    size = place.head(key).size
    sha256 = hashlib.sha256()
    for piece in place.stream_range(key, ByteRange(0, size)) if size else ():
        sha256.update(piece)
    return size, sha256.hexdigest()
