"""Compares a topic's files in a place with the log: every export, every task, every row. If a task's records can no
longer be compared, only the bytes of its files are checked.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..log.record_digest import RangeDigests
from ..state.errors import ObjectNotFound, TierstateError
from ..state.offsets import ByteRange, Offset
from ..state.routing import Tier
from ..storage.object_store import ObjectReader
from ..values.schema_registry import RegistryAccess
from .columns import Rows
from .export_plan import ExportedFile, ExportPlan, TaskDone, covered, kept
from .export_task import sha256_of
from .jobs import Job, Task, range_error
from .names import day_name, file_key, has_range_of, manifest_key
from .parquet import by_date, row_groups
from .proof import difference, in_step
from .spill import divided

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
