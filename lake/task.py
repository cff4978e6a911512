"""Runs one task of an export: puts its records into files by date, the files into the place, then its outcome.

A file's bytes follow from the plan and the records, so a second run of a task, after a crash or concurrent, puts the
same files, and finds those that are there. Until it is committed no process relies on any of them.

Memory: a row group, decoded and encoded, and an upload's parts. Disk (the folder for temporary files): the files of one
task, some `file_bytes` of the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack

import pyarrow as pa

from ..fetch.planned_split import Skipped
from ..leader.act import Act
from ..state.errors import ObjectExists
from ..state.offsets import ByteRange
from ..storage.object_store import ObjectReader, ObjectStore
from ..values.schema_registry import RegistryAccess
from .columns import Rows
from .ledger import Ledger, differs, given_up
from .names import date_of
from .parquet import ParquetFile
from .parted import laid_out
from .plan import ExportedFile, ExportPlan, ExportTask, TaskDone


def export_task(
    plan: ExportPlan,
    task: ExportTask,
    batches: Iterable[pa.RecordBatch],
    ledger: Ledger,
    registry: RegistryAccess | None = None,
    skipped: tuple[Skipped, ...] = (),
) -> Act[TaskDone]:
    """Run the task, as an act. ``batches``: as `parted.laid_out` takes them.

    Raises what the store and ``batches`` raise, DiskFull, CorruptData where another run made other files, and
    InvalidRequest where the task was given up while it ran.
    """
    rows = Rows(plan.shape.columns, registry)
    files: list[ExportedFile] = []
    making: dict[str, ParquetFile] = {}
    with ExitStack() as stack:
        for group in laid_out(plan, task, batches):
            if group.records is not None:
                if group.key not in making:
                    making[group.key] = begun = _begun(plan, rows.schema)
                    stack.callback(begun.close)
                making[group.key].add(group.records, rows.of(group.records))
                continue
            file = making.pop(group.key)
            size, sha256 = file.finish()
            yield f"put {group.key}"
            _put(ledger.place, group.key, file, size, sha256)
            files.append(_described(group.key, task, file, size, sha256))
            file.close()
    outcome = TaskDone(task.number, tuple(sorted(files, key=lambda each: each.key)), skipped=skipped)
    yield "commit the task"
    if not ledger.commit(plan, outcome):
        for each in outcome.files:
            yield f"remove {each.key}"
            ledger.place.delete(each.key)
        raise given_up(plan)
    return outcome  # from the commit on its records are exported, and no other run of it is needed


def _begun(plan: ExportPlan, schema: pa.Schema) -> ParquetFile:
    facts = {"topic_id": str(plan.topic_id), "isolation": plan.shape.isolation.value}
    return ParquetFile(schema, facts)


def _put(place: ObjectStore, key: str, made: ParquetFile, size: int, sha256: str) -> None:
    try:
        place.put_stream(key, made.pieces())
    except ObjectExists:
        if sha256_of(place, key) != (size, sha256):
            raise differs(place, key) from None


def sha256_of(place: ObjectReader, key: str) -> tuple[int, str]:
    """Return size and SHA-256 of an object. Raises ObjectNotFound."""
    size = place.head(key).size
    sha256 = hashlib.sha256()
    for piece in place.stream_range(key, ByteRange(0, size)) if size else ():
        sha256.update(piece)
    return size, sha256.hexdigest()


def _described(key: str, task: ExportTask, made: ParquetFile, size: int, sha256: str) -> ExportedFile:
    earliest, latest = made.times
    return ExportedFile(
        key=key,
        partition=task.partition,
        date=date_of(key),
        records=made.records,
        first_offset=made.first_offset,
        last_offset=made.last_offset,
        min_timestamp=earliest,
        max_timestamp=latest,
        bytes=size,
        sha256=sha256,
        digest=made.digest,
        corrupt=made.corrupt,
    )
