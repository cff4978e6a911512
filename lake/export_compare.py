"""Compares an exported file with the log: its bytes as they were written, and every row with the log's record."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ..log.record_digest import RecordDigest
from ..state.errors import ObjectNotFound
from ..state.offsets import ByteRange
from ..storage.object_store import ObjectReader
from ..values.schema_registry import RegistryAccess
from .columns import Rows, first_difference
from .export_plan import ExportedFile, ExportPlan, TaskDone
from .export_task import sha256_of
from .jobs import Task
from .names import day_name, file_key, has_range_of
from .row_groups import by_date, laid_out, row_groups


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

    ``batches``: as for `row_groups.laid_out`. ``task`` begins later than the exported task if the log does. Memory: two
    row groups. Disk: the files of a task. Raises the errors of the store and of ``batches``.
    """
    findings = [each for file in done.files for each in check_bytes(file, place)]
    files, rows = _Known(plan, task, done, place, {each.key for each in findings}), Rows(plan.shape.columns, registry)
    if not all(has_range_of(task, file.key) for file in done.files):
        more, records = _compare_rest(files, batches, rows)
        return TaskChecked((*findings, *more), records)
    return TaskChecked((*findings, *_compare_all(files, batches, rows)), done.records)


@dataclass(frozen=True, slots=True)
class _Known:
    """A task, its outcome, and its place. ``damaged``: keys of files whose bytes are wrong."""

    plan: ExportPlan
    task: Task
    done: TaskDone
    place: ObjectReader
    damaged: set[str]


def _compare_rest(entry: _Known, batches: Iterable[pa.RecordBatch], rows: Rows) -> tuple[list[Finding], int]:
    """Compare the records that the log still has with rows by offset: they form other row groups than in the file."""
    task, outcome, damaged = entry.task, entry.done, entry.damaged
    findings, compared = list[Finding](), dict[str, int]()
    with ExitStack() as stack:
        whole = [file for file in outcome.files if file.key not in damaged]
        files = {file.key: stack.enter_context(closing(_Compared(file, entry.place))) for file in whole}
        for group in row_groups(batches, entry.plan.shape.row_group_bytes):
            for day, records in by_date(group):
                keys = [file.key for file in outcome.files if file.date == day_name(day)]
                if damaged.intersection(keys):
                    continue
                first, last = _first(records), int(records.column("offset")[-1].as_py())
                expected = rows.of(records)
                there = [files[key].between(first, last) for key in keys]
                if not there or not _same(pa.concat_tables(there), expected):
                    findings.append(Finding(keys[0] if keys else str(task), "rows are not the log's", first))
                for key, part in zip(keys, there, strict=True):
                    compared[key] = compared.get(key, 0) + part.num_rows
        for key, file in files.items():
            if file.between(task.start, task.end).num_rows != compared.get(key, 0):
                findings.append(Finding(key, "it has rows that the log does not have"))
    return findings, sum(compared.values())


def _compare_all(entry: _Known, batches: Iterable[pa.RecordBatch], rows: Rows) -> list[Finding]:
    files, diffs, damaged = {each.key: each for each in entry.done.files}, list[Finding](), set(entry.damaged)
    comparing: dict[str, _Compared] = {}
    with ExitStack() as stack:
        for group in laid_out(batches, entry.plan.shape.row_group_bytes, partial(file_key, entry.plan, entry.task)):
            file = files.get(group.name)
            if file is None:
                if group.records is not None:
                    diffs.append(Finding(group.name, "the log has records that are in no file", _first(group.records)))
                continue
            if file.key in damaged:
                continue
            if file.key not in comparing:
                comparing[file.key] = stack.enter_context(closing(_Compared(file, entry.place)))
            problem = comparing[file.key].next(rows, group.records)
            if problem is not None:
                damaged.add(file.key)
                diffs.append(Finding(file.key, problem, None if group.records is None else _first(group.records)))
        missed = files.keys() - comparing.keys() - damaged
    return diffs + [Finding(key, "none of its records is in the log") for key in sorted(missed)]


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


class _Compared:
    """A file that is read row group by row group, in step with the log."""

    def __init__(self, file: ExportedFile, place: ObjectReader) -> None:
        self._file, self._digest, self._corrupt = file, RecordDigest(), 0
        self._copy: IO[bytes] = tempfile.TemporaryFile(prefix="tierstate-check-")
        for piece in place.stream_range(file.key, ByteRange(0, file.bytes)):
            self._copy.write(piece)
        self._rows = pq.ParquetFile(self._copy)
        self._at = 0

    def close(self) -> None:
        self._copy.close()

    def between(self, first: int, last: int) -> pa.Table:
        """Return the rows with offsets from ``first`` to ``last``, both inclusive."""
        self._copy.seek(0)
        return pq.read_table(self._copy, filters=[("offset", ">=", first), ("offset", "<=", last)])

    def next(self, typed: Rows, records: pa.Table | None) -> str | None:
        """Compare the next row group, or the complete file if ``records`` is None. Return the difference, or None."""
        if records is None:
            if self._at < self._rows.num_row_groups:
                return "it has rows that the log does not have"
            if self._digest.hexdigest() != self._file.digest or self._digest.count != self._file.records:
                return "the record digest of the manifest is not that of the log"
            if self._corrupt != self._file.corrupt:
                return f"it has {self._corrupt} corrupt records, the manifest says {self._file.corrupt}"
            return None
        if self._at >= self._rows.num_row_groups:
            return "it lacks rows that the log has"
        rows = self._rows.read_row_group(self._at)
        self._at += 1
        self._digest.update(records)
        before, expected = typed.corrupt, typed.of(records)
        self._corrupt += typed.corrupt - before
        if not _same(rows, expected):
            return "rows are not the log's"
        return None


def _same(rows: pa.Table, expected: pa.Table) -> bool:
    return rows.num_rows == expected.num_rows and first_difference(rows.cast(expected.schema), expected) is None


def _first(records: pa.Table) -> int:
    return int(records.column("offset")[0].as_py())
