"""Compares the files of one task of an export with the log, row by row, or their bytes alone."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..log.record_digest import RangeDigests
from ..state.errors import ObjectNotFound
from ..state.offsets import ByteRange
from ..storage.object_store import ObjectReader
from ..values.schema_registry import RegistryAccess
from .columns import Rows
from .export_plan import ExportedFile, ExportPlan, TaskDone
from .export_task import sha256_of
from .jobs import Task
from .names import day_name, file_key, has_range_of
from .parquet import by_date, row_groups
from .proof import difference, in_step
from .spill import divided


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference. ``offset``: the offset of the first record in the rows that differ."""

    key: str
    problem: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class TaskChecked:
    """``records``: the number of the task's records that were compared with the log."""

    findings: tuple[Finding, ...]
    records: int


def check_task(
    plan: ExportPlan,
    task: Task,
    done: TaskDone,
    batches: Iterable[pa.RecordBatch],
    place: ObjectReader,
    registry: RegistryAccess | None = None,
) -> TaskChecked:
    """Read the files of a task, and compare them with the log, whose keys and values are typed again.

    ``batches``: as for `parquet.row_groups`. ``task`` begins later than the exported task if the log does. Memory: two
    row groups. Disk: a file, and the records of other dates. Raises the errors of the store and of ``batches``.
    """
    findings = [each for file in done.files for each in check_bytes(file, place)]
    damaged = {file.date for file in done.files if file.key in {each.key for each in findings}}
    files = defaultdict[str, list[ExportedFile]](list)
    for file in sorted(done.files, key=lambda each: each.first_offset):
        files[file.date].append(file)
    whole, records = all(has_range_of(task, file.key) for file in done.files), 0
    compare = partial(_compare_date, place, Rows(plan.shape.columns, registry), None if whole else task.start)
    with closing(divided(row_groups(batches, plan.shape.row_group_bytes), by_date)) as days:
        dated = ((day_name(day), file_key(plan, task, day), groups) for day, groups in days)
        for date, key, groups in chain(dated, _left(files)):
            of_date = files.pop(date, [])
            if date not in damaged:
                count, finding = compare(of_date, key, groups)
                records += count
                findings += filter(None, [finding])
    return TaskChecked(tuple(findings), done.records if whole else records)


def _left(files: Mapping[str, list[ExportedFile]]) -> Iterator[tuple[str, str, Iterator[pa.Table]]]:
    """Yield the dates of which the log has no records."""
    for date in list(files):
        yield date, "", iter(())


def check_bytes(file: ExportedFile, place: ObjectReader) -> Iterator[Finding]:
    """Yield a finding where a file's size or SHA-256 is wrong. Its rows are not read."""
    try:
        size, sha256 = sha256_of(place, file.key)
    except ObjectNotFound:
        yield Finding(file.key, "the file is not there")
        return
    if size != file.bytes:
        yield Finding(file.key, f"the file has {size} bytes, not {file.bytes}")
    elif sha256 != file.sha256:
        yield Finding(file.key, "the file's bytes are not those that were written (SHA-256)")


def _compare_date(
    place: ObjectReader,
    rows: Rows,
    start: int | None,
    files: Sequence[ExportedFile],
    key: str,
    groups: Iterator[pa.Table],
) -> tuple[int, Finding | None]:
    """Return how many records a task has of a date, and the first difference of its files of that date. There is one
    file, or several of an earlier version. ``key``: of the file that the task would make now.

    ``start``: the log's first offset, or None if the log has all of the files. Rows below it are left out, and then the
    digest of all records cannot be compared.
    """
    digests = RangeDigests([(file.first_offset, file.last_offset + 1) for file in files])
    before, none = rows.corrupt, rows.schema.empty_table()

    def expected() -> Iterator[pa.Table]:
        for records in groups:
            digests.update(records)
            yield rows.of(records)

    key = files[0].key if files else key
    with closing(_rows_of(place, files, start)) as stored:
        for have, want in in_step(stored, expected(), none):
            if (different := difference(have.cast(none.schema), want, "offset")) is not None:
                return digests.whole.count, Finding(key, *different)
    if start is None:
        for file, digest in zip(files, digests.parts, strict=True):
            if (digest.hexdigest(), digest.count) != (file.digest, file.records):
                return file.records, Finding(file.key, "the record digest of the manifest is not that of the log")
        corrupt, named = rows.corrupt - before, sum(file.corrupt for file in files)
        if corrupt != named:
            return digests.whole.count, Finding(key, f"it has {corrupt} corrupt records, the manifest says {named}")
    return digests.whole.count, None


def _rows_of(place: ObjectReader, files: Sequence[ExportedFile], start: int | None) -> Generator[pa.Table, None, None]:
    """Yield the row groups of the files, without rows below ``start``."""
    for file in files:
        with tempfile.TemporaryFile(prefix="tierstate-check-") as copy:
            for piece in place.stream_range(file.key, ByteRange(0, file.bytes)):
                copy.write(piece)
            parquet = pq.ParquetFile(copy)
            for group in map(parquet.read_row_group, range(parquet.num_row_groups)):
                yield group if start is None else group.filter(pc.greater_equal(group.column("offset"), start))
