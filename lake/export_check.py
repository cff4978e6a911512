"""Compares a topic's files in a place with the log: every export, every task, every row. If a task's records can no
longer be compared, only the bytes of its files are checked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..log.record_digest import RecordDigest
from ..state.errors import ObjectNotFound, TierstateError
from ..state.offsets import ByteRange, Offset
from ..state.routing import Tier
from ..storage.object_store import ObjectReader
from ..values.schema_registry import RegistryAccess
from .columns import Rows, first_difference
from .export_plan import ExportedFile, ExportPlan, TaskDone, covered, kept
from .export_task import sha256_of
from .jobs import Job, Task, range_error
from .names import day_name, file_key, has_range_of, manifest_key
from .parquet import by_date, row_groups

if TYPE_CHECKING:
    from .export import Export, Refuse


@dataclass
class Checked:
    """``records`` and ``files``: how many were compared with the log. ``lost``: the number of records that the log no
    longer has. ``by_bytes``: the number of files of which only the bytes were checked. ``given_up``: the number of
    offsets in tasks that were given up.
    """

    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    files: int = 0
    by_bytes: int = 0
    lost: int = 0
    given_up: int = 0
    errors: list[TierstateError] = field(default_factory=list)
    """The errors of files that could not be compared. Each is also a finding."""

    def refuse(self, task: Task, error: TierstateError) -> None:
        """Record that the files of a task cannot be compared."""
        self.findings.append(Finding(str(task), f"not compared: {error}"))
        self.errors.append(error)


def check(export: Export) -> Checked:
    """Compare everything that can be read. Raises errors for which `is_of_all` is true, and CorruptData if two exports
    have the same offsets.
    """
    checked = Checked()
    ledger = export.ledger
    done_by_plan = [(plan, ledger.done(plan)) for plan in ledger.plans()]
    covered(kept(plan, outcomes) for plan, outcomes in done_by_plan)
    for plan, outcomes in done_by_plan:
        if ledger.is_given_up(plan):
            strays = ledger.strays(plan, outcomes.values())
            checked.findings += [Finding(key, "the export that made it was given up: do that again") for key in strays]
        elif not ledger.is_whole(plan):
            lacking = [_lacking(plan, task) for task in ledger.missing(plan)] or [
                "the export was not finished: run it again"
            ]
            checked.findings += [Finding(manifest_key(plan), problem) for problem in lacking]
        rest = kept(plan, outcomes)
        checked.given_up += plan.offsets - rest.offsets
        there, lost = _split(export, plan, [task for task in rest.tasks if task.number in outcomes], checked.refuse)
        jobs = list(export.jobs(plan, there, checked.refuse, outcomes))
        # both tiers lost some of the records after the export
        lost += [job.task for job in jobs if job.split.skipped != outcomes[job.number].skipped]
        for task in lost:
            for file in outcomes[task.number].files:
                checked.findings += check_bytes(file, export.ledger.place)
                checked.by_bytes += 1
            checked.lost += outcomes[task.number].records
        _compare(export, [job for job in jobs if job.task not in lost], outcomes, checked)
    return checked


def _lacking(plan: ExportPlan, task: Task) -> str:
    return (
        f"the export was not finished: it lacks {plan.topic}-{task.partition} {task.start}..{task.end - 1}; "
        "run it again, or end it without: --give-up --execute"
    )


def _compare(export: Export, jobs: list[Job], done: dict[int, TaskDone], checked: Checked) -> None:
    tasks = {job.number: job.task for job in jobs}
    for number, outcome in export.run(jobs):
        if isinstance(outcome, TierstateError):
            checked.refuse(tasks[number], range_error(outcome))
            continue
        assert isinstance(outcome, TaskChecked)
        checked.findings += outcome.findings
        checked.records += outcome.records
        checked.lost += done[number].records - outcome.records
        checked.files += len(done[number].files)


def _split(export: Export, plan: ExportPlan, tasks: list[Task], refuse: Refuse) -> tuple[list[Task], list[Task]]:
    """Return the tasks that can be compared with the log, and the others. The former begin at the log start if that is
    later.

    Without the column `offset` it is unknown which rows the log still has. A task that begins earlier is then not
    compared.
    """
    has_offsets = "offset" in plan.shape.columns.names
    there, gone = list[Task](), list[Task]()
    for number, group in groupby(tasks, lambda task: task.partition):  # a plan has them in order of partition
        try:
            log_start = export.log.source.extent(plan.topic, number, plan.shape.isolation, Tier.AUTO).start
        except TierstateError as error:
            reason = range_error(error)
            for task in group:
                refuse(task, reason)
            continue
        for task in group:
            start = Offset(max(task.start, log_start))
            if start == task.start or (has_offsets and start < task.end):
                there.append(replace(task, start=start))
            else:
                gone.append(task)
    return there, gone


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

    ``batches``: as for `parquet.laid_out`. ``task`` begins later than the exported task if the log does. Memory: two
    row groups. Disk: the files of a task. Raises the errors of the store and of ``batches``.
    """
    findings = [each for file in done.files for each in check_bytes(file, place)]
    damaged = {each.key for each in findings}
    skipped_days = {file.date for file in done.files if file.key in damaged}
    rows = Rows(plan.shape.columns, registry)
    whole = all(has_range_of(task, file.key) for file in done.files)
    with ExitStack() as opened:
        files = [
            opened.enter_context(closing(_Compared(file, place, None if whole else task.start)))
            for file in sorted(done.files, key=lambda each: each.first_offset)
            if file.date not in skipped_days
        ]
        for group in row_groups(batches, plan.shape.row_group_bytes):
            for day, records in by_date(group):
                date = day_name(day)
                for file in files:
                    if file.date == date:
                        records = file.compare(rows, records)
                if len(records) and date not in skipped_days:
                    problem = "the log has records that are in no file"
                    findings.append(Finding(file_key(plan, task, day, 0), problem, _first(records)))
        findings += [finding for file in files if (finding := file.end()) is not None]
    return TaskChecked(tuple(findings), done.records if whole else sum(file.records for file in files))


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
    """A file that is read in step with the log. ``start``: the log's first offset, or None if it has all of the file.
    Rows below ``start`` are left out, and then the digest of all records cannot be compared.
    """

    def __init__(self, file: ExportedFile, place: ObjectReader, start: int | None) -> None:
        self.date, self.records = file.date, 0
        self._file, self._start, self._digest, self._corrupt = file, start, RecordDigest(), 0
        self._finding: Finding | None = None
        self._copy: IO[bytes] = tempfile.TemporaryFile(prefix="tierstate-check-")
        for piece in place.stream_range(file.key, ByteRange(0, file.bytes)):
            self._copy.write(piece)
        parquet = pq.ParquetFile(self._copy)
        self._groups = map(parquet.read_row_group, range(parquet.num_row_groups))
        self._waiting = parquet.schema_arrow.empty_table()

    def close(self) -> None:
        self._copy.close()

    def compare(self, rows: Rows, records: pa.Table) -> pa.Table:
        """Compare the next rows with these records, as far as the file reaches. Return the records behind it."""
        count = pc.sum(pc.less_equal(records.column("offset"), self._file.last_offset)).as_py() or 0
        behind, records = records.slice(count), records.slice(0, count)
        if self._finding is None and count:
            self.records += count
            self._digest.update(records)
            before, expected = rows.corrupt, rows.of(records)
            self._corrupt += rows.corrupt - before
            there = self._next(count)
            if there.num_rows < count:
                self._finding = Finding(self._file.key, "it lacks rows that the log has", _first(records))
            elif first_difference(there.cast(expected.schema), expected) is not None:
                self._finding = Finding(self._file.key, "rows are not the log's", _first(records))
        return behind

    def end(self) -> Finding | None:
        """Return the file's first difference. The log has no more records of the file."""
        if self._finding is not None:
            return self._finding
        if self._next(1).num_rows:
            return Finding(self._file.key, "it has rows that the log does not have")
        if self._start is None:
            if (self._digest.hexdigest(), self._digest.count) != (self._file.digest, self._file.records):
                return Finding(self._file.key, "the record digest of the manifest is not that of the log")
            if self._corrupt != self._file.corrupt:
                problem = f"it has {self._corrupt} corrupt records, the manifest says {self._file.corrupt}"
                return Finding(self._file.key, problem)
        return None

    def _next(self, count: int) -> pa.Table:
        """Return the next rows, fewer than ``count`` only at the end of the file."""
        while self._waiting.num_rows < count and (group := next(self._groups, None)) is not None:
            if self._start is not None:
                group = group.filter(pc.greater_equal(group.column("offset"), self._start))
            self._waiting = pa.concat_tables([self._waiting, group])
        rows, self._waiting = self._waiting.slice(0, count), self._waiting.slice(count)
        return rows


def _first(records: pa.Table) -> int:
    return int(records.column("offset")[0].as_py())
