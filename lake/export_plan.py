"""The definition of an export: ranges of offsets, cut into tasks once, and the files that each task made.

Every run of a task makes the same files with the same bytes, so only the plan (`Shape`) may determine a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..fetch.planned_split import Skipped
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, OffsetRange, TimestampMs
from ..state.routing import Isolation
from .columns import Columns
from .jobs import Task

if TYPE_CHECKING:
    pass

FORMAT = 1
"""The version of the documents below. Documents of other versions are refused."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of rows and files. ``row_group_bytes``: the bytes of keys, values and headers before they are encoded.

    ``writer``: the encoding library and its version. Another version makes different bytes of the same rows.
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
    def of_json(cls, document: Mapping[str, Any]) -> Shape:
        columns = Columns.of_json(document["columns"])
        return cls(columns, Isolation(document["isolation"]), document["row_group_bytes"], document["writer"])


def _named(skipped: tuple[Skipped, ...]) -> dict[str, Any]:
    """Return the field ``skipped`` if there are gaps: earlier documents lack it, and their bytes must not change."""
    return {"skipped": skipped} if skipped else {}


def _skipped(document: Mapping[str, Any]) -> tuple[Skipped, ...]:
    return tuple(Skipped(*each) for each in document.get("skipped", ()))


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """One export of a topic, by its number, into one place. Tasks are in order of partition and offset.

    ``skipped``: accepted gaps of the request, which no task has.
    """

    topic: str
    topic_id: TopicId
    number: int
    shape: Shape
    tasks: tuple[Task, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def offsets(self) -> int:
        """Return the number of offsets of all tasks."""
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
    def of_json(cls, document: Mapping[str, Any]) -> ExportPlan:
        """Parse a plan. Raises InvalidRequest for another format, else KeyError, TypeError or ValueError if invalid."""
        if document["format"] != FORMAT:
            raise InvalidRequest("an export of another version of tierstate", format=document["format"], known=FORMAT)
        tasks = [
            Task(number, partition, Offset(start), Offset(end))
            for number, (partition, start, end) in enumerate(document["tasks"])
        ]
        shape, topic_id = Shape.of_json(document["shape"]), TopicId(document["topic_id"])
        return cls(document["topic"], topic_id, document["number"], shape, tuple(tasks), _skipped(document))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file. Offsets are inclusive, and ascend within the file. Timestamps are in ms.

    ``digest``: the record digest (`log/record_digest.py`) of its records. ``sha256``: the SHA-256 of the file's bytes.
    ``corrupt``: the number of records whose key or value does not parse.
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
    """The outcome of a task: its files, or none if its range has no visible record. ``given_up``: no run of it may
    commit.

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
        document = {"format": FORMAT, "task": self.task, "files": files, "given_up": self.given_up}
        return {**document, **_named(self.skipped)}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TaskDone:
        names = {each.name for each in fields(ExportedFile)}
        files = [ExportedFile(**{name: each[name] for name in names}) for each in document["files"]]
        return cls(document["task"], tuple(files), document["given_up"], _skipped(document))


def kept(plan: ExportPlan, done: Mapping[int, TaskDone]) -> ExportPlan:
    """Return the plan without the tasks that were given up. ``done``: outcomes by number of the task."""
    tasks = (task for task in plan.tasks if task.number not in done or not done[task.number].given_up)
    return replace(plan, tasks=tuple(tasks))


Ranges = Mapping[int, Extent]
"""The range of each partition."""


def covered(plans: Iterable[ExportPlan]) -> dict[int, list[OffsetRange]]:
    """Return the ranges that the tasks of these exports have, by partition, ascending.

    Raises CorruptData if two tasks have the same offset, because the files would have it twice.
    """
    ranges: dict[int, list[OffsetRange]] = {}
    for task in sorted((task for plan in plans for task in plan.tasks), key=lambda each: each.start):
        before = ranges.setdefault(task.partition, [])
        if before and task.start <= before[-1].end:
            raise CorruptData("two exports have the same offsets", partition=task.partition, start=task.start)
        before.append(OffsetRange(task.start, Offset(task.end - 1)))
    return ranges


def uncovered(ranges: Ranges, have: Mapping[int, list[OffsetRange]]) -> list[tuple[int, Offset, Offset]]:
    """Return the requested ranges that are not in ``have``: ``(partition, start, end)``, end exclusive, ascending."""
    return [
        (partition, missing.start, Offset(missing.end + 1))
        for partition, (start, end) in sorted(ranges.items())
        if start < end
        for missing in OffsetRange(start, Offset(end - 1)).without(*have.get(partition, ()))
    ]
