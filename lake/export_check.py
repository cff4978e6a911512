"""Compares a topic's files in a place with the log: every export, every task, every row. If a task's records can no
longer be compared, only the bytes of its files are checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ..state.errors import TierstateError
from ..state.offsets import Offset
from ..state.routing import Tier
from .export_plan import ExportPlan, TaskDone, covered, kept
from .jobs import Job, Task, range_error
from .names import manifest_key
from .task_check import Finding, TaskChecked, check_bytes

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
