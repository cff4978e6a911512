"""What an export is: ranges of offsets, cut into tasks once and for good, and what each task made.

Whoever does a task again makes the same files of the same bytes: everything that decides about a byte is in the plan
(`Shape`), and nothing else may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..fetch.planned_split import Skipped
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation
from .columns import Columns

FORMAT = 1
"""Of the documents below; another one is refused."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows and files are made. ``row_group_bytes``: of keys, values and headers, before they are encoded.

    ``writer``: whose bytes they are; another version of it makes the same rows of other bytes.
    """

    columns: Columns
    isolation: Isolation
    row_group_bytes: int
    writer: str

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": self.columns.as_json(),
            "isolation": self.isolation,
            "row_group_bytes": self.row_group_bytes,
            "writer": self.writer,
        }

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Shape:
        columns = Columns.of_json(said["columns"])
        return cls(columns, Isolation(said["isolation"]), said["row_group_bytes"], said["writer"])


@dataclass(frozen=True, slots=True)
class ExportTask:
    """The records of ``[start, end)`` of one partition: what one process writes, and commits as one."""

    number: int
    partition: int
    start: Offset
    end: Offset


def _named(skipped: tuple[Skipped, ...]) -> dict[str, Any]:
    """Return nothing without gaps: documents of earlier versions are put again, and their bytes must be the same."""
    return {"skipped": skipped} if skipped else {}


def _skipped(said: Mapping[str, Any]) -> tuple[Skipped, ...]:
    return tuple(Skipped(*each) for each in said.get("skipped", ()))


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The export of this number of a topic, into one place. Tasks are in order of partition and offset.

    ``skipped``: accepted gaps of the request. No task has them.
    """

    topic: str
    topic_id: TopicId
    number: int
    shape: Shape
    tasks: tuple[ExportTask, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def offsets(self) -> int:
        """How many its tasks have."""
        return sum(task.end - task.start for task in self.tasks)

    def as_json(self) -> dict[str, Any]:
        tasks = [[task.partition, task.start, task.end] for task in self.tasks]
        return {
            "format": FORMAT,
            "topic": self.topic,
            "topic_id": str(self.topic_id),
            "number": self.number,
            "shape": self.shape.as_json(),
            "tasks": tasks,
            **_named(self.skipped),
        }

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> ExportPlan:
        """Raises InvalidRequest for a later format, KeyError and such for what is no plan."""
        if said["format"] != FORMAT:
            raise InvalidRequest("an export of another version of tierstate", format=said["format"], known=FORMAT)
        tasks = [
            ExportTask(number, partition, Offset(start), Offset(end))
            for number, (partition, start, end) in enumerate(said["tasks"])
        ]
        shape, topic_id = Shape.of_json(said["shape"]), TopicId(said["topic_id"])
        return cls(said["topic"], topic_id, said["number"], shape, tuple(tasks), _skipped(said))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file. Offsets are inclusive, and in a file ascending; timestamps in ms.

    ``digest``: the record digest (`log/record_digest.py`) of its records; ``sha256``: of the file's bytes;
    ``corrupt``: records of which the key or the value does not parse.
    """

    key: str
    partition: int
    date: str
    records: int
    first_offset: int
    last_offset: int
    min_timestamp: TimestampMs
    max_timestamp: TimestampMs
    bytes: int
    sha256: str
    digest: str
    corrupt: int = 0


@dataclass(frozen=True, slots=True)
class TaskDone:
    """What a task made; none where its range has no record to show. ``given_up``: nobody makes anything of it.

    ``skipped``: gaps within its range that were accepted after the plan was made.
    """

    task: int
    files: tuple[ExportedFile, ...]
    given_up: bool = False
    skipped: tuple[Skipped, ...] = ()

    @property
    def records(self) -> int:
        return sum(each.records for each in self.files)

    @property
    def corrupt(self) -> int:
        return sum(each.corrupt for each in self.files)

    def as_json(self) -> dict[str, Any]:
        files = [asdict(each) for each in self.files]
        said = {"format": FORMAT, "task": self.task, "files": files, "given_up": self.given_up}
        return {**said, **_named(self.skipped)}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> TaskDone:
        names = {each.name for each in fields(ExportedFile)}
        files = [ExportedFile(**{name: each[name] for name in names}) for each in said["files"]]
        return cls(said["task"], tuple(files), said["given_up"], _skipped(said))


def kept(plan: ExportPlan, done: Mapping[int, TaskDone]) -> ExportPlan:
    """Without the tasks that were given up. ``done``: by number."""
    tasks = (task for task in plan.tasks if task.number not in done or not done[task.number].given_up)
    return replace(plan, tasks=tuple(tasks))


Ranges = Mapping[int, Extent]
"""By partition."""


def covered(plans: Iterable[ExportPlan]) -> dict[int, list[Extent]]:
    """What these exports have of each partition: ranges, ascending, joined where they meet.

    Raises CorruptData where two have the same offset: their files would show it twice.
    """
    found: dict[int, list[Extent]] = {}
    tasks = sorted((task for plan in plans for task in plan.tasks), key=lambda each: (each.partition, each.start))
    for task in tasks:
        known = found.setdefault(task.partition, [])
        if known and task.start < known[-1].end:
            raise CorruptData("two exports have the same offsets", partition=task.partition, start=task.start)
        if known and task.start == known[-1].end:
            known[-1] = Extent(known[-1].start, task.end)
        else:
            known.append(Extent(task.start, task.end))
    return found


def uncovered(asked: Ranges, have: Mapping[int, list[Extent]]) -> list[tuple[int, Offset, Offset]]:
    """What is asked for and not there yet: ``(partition, start, end)``, ascending."""
    left = []
    for partition, (start, end) in sorted(asked.items()):
        at = start
        for first, last in have.get(partition, ()):
            if last <= at or first >= end:
                continue
            if first > at:
                left.append((partition, at, first))
            at = last
        if at < end:
            left.append((partition, at, end))
    return left
