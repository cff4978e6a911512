"""An export from its plan to its manifest. A plan is made once, and tasks do it.

    requested ranges  -  ranges of earlier exports into this place  =  the next plan  ->  tasks  ->  manifest

An unfinished export is finished first, by its own plan. So the same command can be run again, also after a kill,
concurrently, or with a larger request: it does the remaining work, and nothing twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from ..app.opening.connection import Advance, ShowProgress
from ..fetch.planned_split import PlannedPart, PlannedSplit, Skipped
from ..state.errors import InvalidRequest, TierstateError
from ..state.offsets import Extent, Offset, OffsetRange
from .export_ledger import Ledger, given_up
from .export_plan import ExportPlan, Ranges, Shape, TaskDone, covered, kept, uncovered
from .export_work import ExportWork, TaskAccess
from .jobs import MOVED, TRIES, Job, Task, range_error
from .log import ExportedLog, Keep
from .parquet import WRITER
from .runs import Run


@dataclass(frozen=True, slots=True)
class FailedRange:
    """Offsets ``[start, end)`` of a partition that could not be exported because of ``error``."""

    partition: int
    start: Offset
    end: Offset
    error: TierstateError

    def place(self, topic: str) -> str:
        """Return the range as text for people. Its last offset is inclusive."""
        return f"{topic}-{self.partition}: {self.start}..{self.end - 1}"

    def as_json(self) -> dict[str, object]:
        kind = type(self.error).__name__
        place = {"partition": self.partition, "start": self.start, "end": self.end}
        return {**place, "error": kind, "message": str(self.error)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request. ``file_bytes``: the approximate bytes of log in the files of one task."""

    topic: str
    ranges: Ranges
    shape: Shape
    file_bytes: int


@dataclass
class Exported:
    """The result of an export, including tasks of earlier runs. ``corrupt``: records whose key or value does not parse.

    ``skipped``: all accepted gaps of the request.
    """

    plans: list[ExportPlan] = field(default_factory=list)
    tasks: int = 0
    tasks_found: int = 0
    """The number of tasks that earlier runs committed."""
    records: int = 0
    corrupt: int = 0
    files: int = 0
    bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    not_exported: list[FailedRange] = field(default_factory=list)
    """Ranges that were not exported, with the errors."""
    unfinished: list[int] = field(default_factory=list)
    """Numbers of the exports that lack some of these ranges."""

    def refuse(self, task: Task, error: TierstateError) -> None:
        """Record that a task cannot be done."""
        self.not_exported.append(FailedRange(task.partition, task.start, task.end, error))

    def count(self, done: TaskDone) -> None:
        self.records += done.records
        self.corrupt += done.corrupt
        self.files += len(done.files)
        self.bytes += sum(each.bytes for each in done.files)
        self.skipped += done.skipped


Refuse = Callable[[Task, TierstateError], None]


def raise_error(task: Task, error: TierstateError) -> None:
    """Raise the error: a `Refuse` of callers for which each task counts."""
    raise error


@dataclass(frozen=True, slots=True)
class Export:
    """The export of one topic into one place. ``keep`` protects ranges that are read. ``progress`` counts offsets."""

    log: ExportedLog
    ledger: Ledger
    access: TaskAccess
    run: Run
    keep: Keep
    progress: ShowProgress

    @property
    def into(self) -> str:
        """Return the URL of the place."""
        return self.access.place.url

    def next_plan(self, request: Wanted, done: Exported | None = None) -> ExportPlan | None:
        """Return an unfinished plan, or else a plan of the remaining ranges. Returns None if nothing remains.

        A new plan has no tasks if all remaining ranges are accepted gaps: then nothing is to be done. ``done``: the
        result of this run so far. An export that this run could not finish is not returned again, and a range that
        cannot be planned is added to ``done``. Raises InvalidRequest if the place has the topic in another shape, or if
        another writer began the export.
        """
        done = done or Exported()
        plans, have = self.ledger.plans(), []
        for plan in plans:
            _require_alike(plan, request.shape)
            if self.ledger.is_whole(plan) or plan.number in done.unfinished:
                have.append(plan)
            elif self.ledger.is_given_up(plan):
                have.append(kept(plan, self.ledger.done(plan)))
            else:
                if plan.shape.writer != WRITER:
                    raise InvalidRequest(
                        "this export was begun with another version of the library that writes Parquet, or of what it"
                        " is told; finish it with that, or export into another place",
                        begun_with=plan.shape.writer,
                        here=WRITER,
                        number=plan.number,
                    )
                return plan
        uncovered_ranges = uncovered(request.ranges, covered(have))
        number = plans[-1].number + 1 if plans else 0
        tasks, skipped = list[Task](), list[Skipped]()
        failed = {(each.partition, each.start, each.end) for each in done.not_exported}
        for partition, start, end in uncovered_ranges:
            if (partition, start, end) in failed:
                continue
            try:
                outline = self.log.planned(request.topic, partition, Extent(start, end), request.shape.isolation)
            except TierstateError as error:
                done.not_exported.append(FailedRange(partition, start, end, range_error(error)))
                continue
            for split in outline.splits(request.file_bytes):
                tasks.append(Task(len(tasks), partition, split.start, split.end))
            skipped += outline.whole.skipped
        if not tasks and not skipped:
            return None
        return ExportPlan(request.topic, self.ledger.topic_id, number, request.shape, tuple(tasks), tuple(skipped))

    def do(self, request: Wanted) -> Exported:
        """Do all plans. A range that fails is in `Exported.not_exported`, and the rest is exported.

        Raises the errors of writing, and errors for which `is_of_all` is true. Committed tasks stay.
        """
        exported = Exported()
        while (plan := self.next_plan(request, exported)) is not None:
            if not plan.tasks:
                exported.skipped += plan.skipped
                break
            if self.ledger.add(plan) == plan:  # otherwise another writer's plan is first, and other ranges remain
                self._finish(plan, exported)
        return exported

    def _finish(self, plan: ExportPlan, counted: Exported) -> None:
        outcomes = self.ledger.done(plan)
        if any(each.given_up for each in outcomes.values()):
            raise given_up(plan)
        counted.plans.append(plan)
        counted.tasks += len(plan.tasks)
        counted.tasks_found += len(outcomes)
        tasks_left = [task for task in plan.tasks if task.number not in outcomes]
        with self.progress(f"exporting {plan.topic}", sum(task.end - task.start for task in tasks_left)) as advance:
            for last in (*[False] * (TRIES - 1), True):
                tasks_left = self._try(plan, tasks_left, outcomes, advance, counted.refuse, last) if tasks_left else []
        for task in plan.tasks:
            if task.number in outcomes:
                counted.count(outcomes[task.number])
        if len(outcomes) < len(plan.tasks):
            counted.unfinished.append(plan.number)
        else:
            self.ledger.finish(plan, [outcomes[task.number] for task in plan.tasks])

    def _try(
        self,
        plan: ExportPlan,
        tasks: list[Task],
        done: dict[int, TaskDone],
        advance: Advance,
        refuse: Refuse,
        last: bool,
    ) -> list[Task]:
        """Do the tasks. Return those whose segments were deleted while they were read; none the ``last`` time."""
        numbered = {task.number: task for task in tasks}
        again: list[Task] = []
        # the longest job first: otherwise processes wait for a long job at the end
        jobs = sorted(self.jobs(plan, tasks, refuse), key=lambda job: job.task.start - job.task.end)
        for number, outcome in self.run(jobs):
            task = numbered[number]
            if isinstance(outcome, MOVED) and not last:
                again.append(task)
            elif isinstance(outcome, TierstateError):
                refuse(task, range_error(outcome))
            elif isinstance(outcome, TaskDone):
                done[number] = outcome
                advance(task.end - task.start)
            self.keep(spans(each for each in tasks if each.number not in done))
        return again

    def jobs(
        self,
        plan: ExportPlan,
        tasks: Iterable[Task],
        refuse: Refuse = raise_error,
        done: Mapping[int, TaskDone] | None = None,
    ) -> Iterator[Job]:
        """Yield a job for each task, routed by the current state of the log. ``refuse`` is called with a task that
        cannot be routed. ``done``: the outcomes to check, by task number. None means to export.
        """
        tasks = sorted(tasks, key=lambda task: task.number)
        self.keep(spans(tasks))
        runs = deque([*group] for _, group in groupby(tasks, lambda task: task.partition))  # each is routed at once
        while runs:
            run = runs.popleft()
            number, extent = run[0].partition, Extent(run[0].start, run[-1].end)
            try:
                planned_range = self.log.planned(plan.topic, number, extent, plan.shape.isolation, leased=True)
            except TierstateError as error:
                reason = range_error(error)
                if len(run) == 1:
                    refuse(run[0], reason)
                else:  # some of the tasks can perhaps be routed alone
                    runs.extendleft([task] for task in reversed(run))
                continue
            if planned_range.whole.topic_id != plan.topic_id:
                raise InvalidRequest(
                    "the topic was made anew since this export was begun; export it into another place",
                    topic=plan.topic,
                    exported=plan.topic_id,
                    now=planned_range.whole.topic_id,
                )
            alone = replace(plan, tasks=(), skipped=())
            for task in run:
                work = ExportWork(alone, self.access, None if done is None else done[task.number])
                yield Job(task, _within(planned_range.whole, task), self.access.log, work)


def spans(tasks: Iterable[Task]) -> dict[int, Extent]:
    """Return the range from the first to the last offset of each partition's tasks."""
    extents: dict[int, Extent] = {}
    for task in tasks:
        start, end = extents.get(task.partition, (task.start, task.end))
        extents[task.partition] = Extent(min(start, task.start), max(end, task.end))
    return extents


def _require_alike(plan: ExportPlan, shape: Shape) -> None:
    if (plan.shape.columns, plan.shape.isolation) != (shape.columns, shape.isolation):
        raise InvalidRequest(
            "this place has the topic in another shape, and a folder of files has one; export into another place",
            **plan.shape.columns.said(),
            isolation=plan.shape.isolation.value,
        )


def _within(whole: PlannedSplit, task: Task) -> PlannedSplit:
    offsets = OffsetRange(task.start, Offset(task.end - 1))
    parts = tuple(
        PlannedPart(inside, part.segment)
        for part in whole.parts
        if (inside := part.offsets.overlap(offsets)) is not None
    )
    return replace(whole, start=task.start, end=task.end, parts=parts)
