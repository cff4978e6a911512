"""Runs one task of an export: writes its records into files by date, puts the files, then commits the outcome.

The plan and the records determine each byte of a file. So a second run of a task, after a crash or concurrent, makes
the same files and finds those that exist. Until the task is committed, no process relies on any of its files.

Memory: one row group, decoded and encoded, and an upload's parts. Disk (the folder for temporary files): the files of
one task, about as large as `file_bytes` of the request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import closing
from functools import partial

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
from .names import date_of, file_key
from .parquet import ParquetFile, finished_files, laid_out


class DescribedFile(ParquetFile):
    """A file, and the data of its records for the ledger."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._groups: list[tuple[int, int, int, int]] = []
        """The first and last offset of each row group, and its earliest and latest timestamp in microseconds."""
        self._digest, self._corrupt = RecordDigest(), 0

    def add(self, records: pa.Table, rows: Rows) -> None:
        """Add a row group with the rows that ``rows`` makes of these records."""
        offsets, times = records.column("offset").chunk(0), records.column("timestamp").chunk(0).cast(pa.int64())
        earliest, latest = (each.as_py() for each in pc.min_max(times).values())
        self._groups.append((offsets[0].as_py(), offsets[-1].as_py(), earliest, latest))
        self._digest.update(records)
        before = rows.corrupt
        self.write(rows.of(records))
        self._corrupt += rows.corrupt - before

    def described(self, key: str, task: Task) -> ExportedFile:
        """Return the ledger's entry for the finished file."""
        size, sha256 = self.sha256()
        firsts, lasts, earliest, latest = zip(*self._groups, strict=True)
        return ExportedFile(
            key=key,
            partition=task.partition,
            date=date_of(key),
            records=self._digest.count,
            first_offset=firsts[0],
            last_offset=lasts[-1],
            min_timestamp=TimestampMs(min(earliest) // 1000),
            max_timestamp=TimestampMs(max(latest) // 1000),
            bytes=size,
            sha256=sha256,
            digest=self._digest.hexdigest(),
            corrupt=self._corrupt,
        )


def export_task(
    plan: ExportPlan,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    ledger: Ledger,
    registry: RegistryAccess | None = None,
    skipped: tuple[Skipped, ...] = (),
) -> Operation[TaskDone]:
    """Run the task. ``batches``: the records, as `parquet.laid_out` takes them. Return the committed outcome.

    Raises the errors of the store and ``batches``, and DiskFull. Raises CorruptData if another run made other files,
    and InvalidRequest if the task was given up while it ran.
    """
    rows = Rows(plan.shape.columns, registry)
    schema = rows.schema.with_metadata(
        {"tierstate.topic_id": str(plan.topic_id), "tierstate.isolation": plan.shape.isolation.value}
    )
    groups = laid_out(batches, plan.shape.row_group_bytes, partial(file_key, plan, task))
    making = finished_files(groups, lambda: DescribedFile(schema), lambda file, records: file.add(records, rows))
    files: list[ExportedFile] = []
    with closing(making):
        for key, file in making:
            described = file.described(key, task)
            yield f"put {key}"
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
