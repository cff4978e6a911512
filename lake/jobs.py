"""The tasks of an export or a table: ranges of offsets, each done by any process. Only plain values are sent there.

An error of a task ends all tasks, or that task, or none: the task is routed again and tried again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..app.opening.split_reads import LogAccess
from ..fetch.packed_splits import SplitWriter, unpacked
from ..fetch.piece import missing_object
from ..fetch.planned_split import PlannedSplit
from ..runtime.clock import SystemClock
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
from ..state.offsets import Offset

if TYPE_CHECKING:
    import pyarrow as pa

TRIES = 3
"""How often a task is tried whose segments were deleted or trimmed while it was read: it is routed again each time."""
MOVED = (PlannedRangeLost, OffsetOutOfRange, ObjectNotFound, SegmentExpired)


def is_of_all(error: TierstateError) -> bool:
    """Return whether an error ends all tasks: it is about the command, its rights, or something unavailable."""
    of_all = isinstance(error, (InvalidRequest, AccessDenied, Unavailable))
    return of_all and not isinstance(error, LineageUnconfirmed)


def range_error(error: TierstateError) -> TierstateError:
    """Return the error of a range that ends no other range. Raises an error that ends all tasks.

    The range was routed again and again: an object that is still not there is missing.
    """
    if is_of_all(error):
        raise error
    topic, partition = error.facts.get("topic"), error.facts.get("partition")
    if not (isinstance(error, ObjectNotFound) and isinstance(topic, str) and isinstance(partition, int)):
        return error
    return missing_object(error, topic, partition)


@dataclass(frozen=True, slots=True)
class Task:
    """The records of ``[start, end)`` of one partition: written by one process, and committed as one."""

    number: int
    partition: int
    start: Offset
    end: Offset

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.start}..{self.end - 1}"


class Work(Protocol):
    """The use that an export or a table makes of the records of a task: plain values, credentials included."""

    def outcome(self, task: Task, split: PlannedSplit, batches: Iterator[pa.RecordBatch]) -> Any:
        """Do it, in any process. ``batches``: the records of ``split``. Raises errors of tierstate."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A task, how to read its records now, and what to do with them. ``packed``: its split."""

    task: Task
    packed: bytes
    access: LogAccess
    work: Work

    @classmethod
    def of(cls, task: Task, split: PlannedSplit, access: LogAccess, work: Work) -> Job:
        return cls(task, SplitWriter().packed([split]), access, work)

    @property
    def number(self) -> int:
        return self.task.number

    @property
    def split(self) -> PlannedSplit:
        [split] = unpacked(self.packed)
        return split

    def made(self) -> Any:
        """Do the job, in any process. Return its outcome; raises errors of tierstate."""
        split = self.split
        with closing(records_of(split, self.access)) as batches:
            return self.work.outcome(self.task, split, batches)


def records_of(split: PlannedSplit, access: LogAccess) -> Generator[pa.RecordBatch, None, None]:
    """Yield exactly the records of a split. Close it."""
    with access.reads([split], SystemClock()) as reads:
        yield from reads.records(split)
