"""An export from its beginning to its manifest: what is there already, what is left, planned once, and done by tasks.

    asked ranges  -  what earlier exports of this place have  =  the next plan  ->  tasks  ->  manifest

What was begun is finished first, by its own plan. So the same command run again does what is left and nothing twice,
whether it was killed, is run beside itself, or asks for more than last time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..app.connection import Advance, ShowProgress
from ..fetch.piece import missing_object
from ..fetch.plan import Groups
from ..fetch.planned_split import PlannedPart, PlannedSplit, Skipped
from ..state.errors import (
    AccessDenied,
    InvalidRequest,
    LineageUnconfirmed,
    ObjectNotFound,
    OffsetOutOfRange,
    PlannedRangeLost,
    SegmentExpired,
    TierstateError,
    Unavailable,
)
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, OffsetRange
from .encodings import WRITER
from .exported_log import ExportedLog
from .jobs import Job, Run, TaskAccess, job_of
from .kept import Keep
from .ledger import Ledger, given_up
from .plan import ExportPlan, ExportTask, Ranges, Shape, TaskDone, covered, kept, uncovered

TRIES = 3
"""Of a task whose segments went, or were trimmed, while it was read: routed again each time."""
MOVED = (PlannedRangeLost, OffsetOutOfRange, ObjectNotFound, SegmentExpired)


def is_of_all(error: TierstateError) -> bool:
    """Return whether an error ends all tasks: it is about the command, its rights, or something that is away."""
    of_all = isinstance(error, (InvalidRequest, AccessDenied, Unavailable))
    return of_all and not isinstance(error, LineageUnconfirmed)


def for_good(error: TierstateError) -> TierstateError:
    """Return the error of what was routed anew again and again: an object that is still not there is missing."""
    topic, partition = error.facts.get("topic"), error.facts.get("partition")
    if not (isinstance(error, ObjectNotFound) and isinstance(topic, str) and isinstance(partition, int)):
        return error
    return missing_object(error, topic, partition)


@dataclass(frozen=True, slots=True)
class FailedRange:
    """Offsets ``[start, end)`` of a partition that a task failed on. ``error`` says why."""

    partition: int
    start: Offset
    end: Offset
    error: TierstateError

    def place(self, topic: str) -> str:
        """Return the range, for people."""
        return f"{topic}-{self.partition}: {self.start}..{self.end - 1}"

    def as_json(self) -> dict[str, object]:
        kind = type(self.error).__name__
        place = {"partition": self.partition, "start": self.start, "end": self.end}
        return {**place, "error": kind, "message": str(self.error)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. ``file_bytes``: of log, about, in a task's files."""

    topic: str
    topic_id: TopicId
    ranges: Ranges
    shape: Shape
    file_bytes: int


@dataclass
class Exported:
    """What an export did, and found done. ``corrupt``: records of which the key or the value does not parse.

    ``skipped``: all accepted gaps of the request.
    """

    plans: list[ExportPlan] = field(default_factory=list)
    tasks: int = 0
    found: int = 0
    """Tasks that were committed before."""
    records: int = 0
    corrupt: int = 0
    files: int = 0
    bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    not_exported: list[FailedRange] = field(default_factory=list)
    """Ranges that are not exported, and why."""
    unfinished: list[int] = field(default_factory=list)
    """Numbers of the exports that lack some of them."""

    def refuse(self, task: ExportTask, error: TierstateError) -> None:
        """Note that a task cannot be done."""
        error = for_good(error)
        self.not_exported.append(FailedRange(task.partition, task.start, task.end, error))

    def count(self, done: TaskDone) -> None:
        self.records += done.records
        self.corrupt += done.corrupt
        self.files += len(done.files)
        self.bytes += sum(each.bytes for each in done.files)
        self.skipped += done.skipped


Refuse = Callable[[ExportTask, TierstateError], None]


@dataclass(frozen=True, slots=True)
class Export:
    """Of one topic into one place. ``keep``: leases. ``progress``: in offsets."""

    log: ExportedLog
    ledger: Ledger
    access: TaskAccess
    run: Run
    keep: Keep
    progress: ShowProgress

    @property
    def into(self) -> str:
        """The place's URL."""
        return self.access.place.url

    def next_plan(self, wanted: Wanted, done: Exported | None = None) -> ExportPlan | None:
        """Return what is to be done next: what was begun, or what is left. None: there is nothing to do.

        It has no tasks where all that is left is skipped: then nothing is to be done.
        ``done``: what this run did. An export that it could not finish is not returned again, and a range that cannot
        be planned is added to it. Raises InvalidRequest where the place has the topic in another shape, or begun by
        another writer.
        """
        done = done or Exported()
        plans, have = self.ledger.plans(), []
        for plan in plans:
            _require_alike(plan, wanted.shape)
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
        left = uncovered(wanted.ranges, covered(have))
        number = plans[-1].number + 1 if plans else 0
        tasks, skipped = list[ExportTask](), list[Skipped]()
        known = {(each.partition, each.start, each.end) for each in done.not_exported}
        for partition, start, end in left:
            if (partition, start, end) in known:
                continue
            try:
                found = self.log.outlined(wanted.topic, partition, Extent(start, end), wanted.shape.isolation)
            except TierstateError as error:
                if is_of_all(error):
                    raise
                done.not_exported.append(FailedRange(partition, start, end, error))
                continue
            for split, _ in found.cut(Groups(wanted.file_bytes, wanted.file_bytes)):
                tasks.append(ExportTask(len(tasks), partition, split.start, split.end))
            skipped += found.whole.skipped
        if not tasks and not skipped:
            return None
        return ExportPlan(wanted.topic, wanted.topic_id, number, wanted.shape, tuple(tasks), tuple(skipped))

    def do(self, wanted: Wanted) -> Exported:
        """Do all of it. A range that fails is in `Exported.not_exported`, and the rest is exported.

        Raises what writing does, and what `is_of_all`. What is committed stays.
        """
        done = Exported()
        while (plan := self.next_plan(wanted, done)) is not None:
            if not plan.tasks:
                done.skipped += plan.skipped
                break
            if self.ledger.add(plan) == plan:  # else somebody else's is first: what is left is another then
                self._finish(plan, done)
        return done

    def _finish(self, plan: ExportPlan, counted: Exported) -> None:
        done = self.ledger.done(plan)
        if any(each.given_up for each in done.values()):
            raise given_up(plan)
        counted.plans.append(plan)
        counted.tasks += len(plan.tasks)
        counted.found += len(done)
        left = [task for task in plan.tasks if task.number not in done]
        with self.progress(f"exporting {plan.topic}", sum(task.end - task.start for task in left)) as advance:
            for last in (*[False] * (TRIES - 1), True):
                left = self._try(plan, left, done, advance, counted.refuse, last) if left else []
        for task in plan.tasks:
            if task.number in done:
                counted.count(done[task.number])
        if len(done) < len(plan.tasks):
            counted.unfinished.append(plan.number)
        else:
            self.ledger.finish(plan, [done[task.number] for task in plan.tasks])

    def _try(
        self,
        plan: ExportPlan,
        tasks: list[ExportTask],
        done: dict[int, TaskDone],
        advance: Advance,
        refuse: Refuse,
        last: bool,
    ) -> list[ExportTask]:
        """Return the tasks that are left, because what they read went meanwhile: none are, the ``last`` time."""
        numbered = {task.number: task for task in tasks}
        again: list[ExportTask] = []
        # the longest first: else processes wait for one at the end
        jobs = sorted(self.jobs(plan, tasks, refuse), key=lambda job: job.task.start - job.task.end)
        for number, outcome in self.run(jobs):
            task = numbered[number]
            if isinstance(outcome, MOVED) and not last:
                again.append(task)
            elif isinstance(outcome, TierstateError):
                if is_of_all(outcome):
                    raise outcome
                refuse(task, outcome)
            elif isinstance(outcome, TaskDone):
                done[number] = outcome
                advance(task.end - task.start)
            self.keep(spans(each for each in tasks if each.number not in done))
        return again

    def jobs(self, plan: ExportPlan, tasks: Iterable[ExportTask], refuse: Refuse | None = None) -> Iterator[Job]:
        """Yield each task, routed as the log lies now. ``refuse`` is told of a task that cannot be; without it that
        raises as `ExportedLog`."""
        tasks = list(tasks)
        self.keep(spans(tasks))
        runs = deque(_runs(tasks))
        while runs:
            run = runs.popleft()
            extent = Extent(run[0].start, run[-1].end)
            try:
                found = self.log.routed(plan.topic, run[0].partition, extent, plan.shape.isolation)
            except TierstateError as error:
                if refuse is None or is_of_all(error):
                    raise
                if len(run) == 1:
                    refuse(run[0], error)
                else:  # some of them may be routed
                    runs.extendleft([task] for task in reversed(run))
                continue
            if found.whole.topic_id != plan.topic_id:
                raise InvalidRequest(
                    "the topic was made anew since this export was begun; export it into another place",
                    topic=plan.topic,
                    exported=plan.topic_id,
                    now=found.whole.topic_id,
                )
            for task in run:
                yield job_of(plan, task, _within(found.whole, task), self.access)


def spans(tasks: Iterable[ExportTask]) -> dict[int, Extent]:
    """From the first to the last offset of each partition's tasks."""
    found: dict[int, Extent] = {}
    for task in tasks:
        start, end = found.get(task.partition, (task.start, task.end))
        found[task.partition] = Extent(min(start, task.start), max(end, task.end))
    return found


def _require_alike(plan: ExportPlan, shape: Shape) -> None:
    if (plan.shape.columns, plan.shape.isolation) != (shape.columns, shape.isolation):
        raise InvalidRequest(
            "this place has the topic in another shape, and a folder of files has one; export into another place",
            **plan.shape.columns.said(),
            isolation=plan.shape.isolation.value,
        )


def _runs(tasks: list[ExportTask]) -> Iterator[list[ExportTask]]:
    """Tasks that meet, together: they are routed at once."""
    run: list[ExportTask] = []
    for task in tasks:
        if run and (run[-1].partition, run[-1].end) != (task.partition, task.start):
            yield run
            run = []
        run.append(task)
    if run:
        yield run


def _within(whole: PlannedSplit, task: ExportTask) -> PlannedSplit:
    wanted = OffsetRange(task.start, Offset(task.end - 1))
    parts = tuple(
        PlannedPart(inside, part.segment)
        for part in whole.parts
        if (inside := part.offsets.overlap(wanted)) is not None
    )
    return replace(whole, start=task.start, end=task.end, parts=parts)
