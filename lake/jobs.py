"""The tasks of an export or a table: ranges of offsets. Any process can do a task, and is sent only plain values.

An error of a task ends all tasks, or only this task, or no task: then the task is routed and tried again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..app.opening.split_reads import LogAccess
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
"""How many times a task is tried if its segments are deleted or trimmed meanwhile. Each try routes it again."""
MOVED = (PlannedRangeLost, OffsetOutOfRange, ObjectNotFound, SegmentExpired)


def is_of_all(error: TierstateError) -> bool:
    """Return whether an error ends all tasks: it concerns the command, its permissions, or something unavailable."""
    of_all = isinstance(error, (InvalidRequest, AccessDenied, Unavailable))
    return of_all and not isinstance(error, LineageUnconfirmed)


def range_error(error: TierstateError) -> TierstateError:
    """Return the error to report for a range, if it ends no other range. Raises an error that ends all tasks.

    The range was routed several times, so an object that is still not found is reported as missing.
    """
    if is_of_all(error):
        raise error
    topic, partition = error.facts.get("topic"), error.facts.get("partition")
    if not (isinstance(error, ObjectNotFound) and isinstance(topic, str) and isinstance(partition, int)):
        return error
    return missing_object(error, topic, partition)


@dataclass(frozen=True, slots=True)
class Task:
    """The records of ``[start, end)`` of one partition. One process writes them, and they are committed together."""

    number: int
    partition: int
    start: Offset
    end: Offset

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.start}..{self.end - 1}"


class Work(Protocol):
    """The use that an export or a table makes of a task's records. It has only plain values, including credentials."""

    def outcome(self, task: Task, split: PlannedSplit, batches: Iterator[pa.RecordBatch]) -> Any:
        """Do the work, in any process. ``batches``: the records of ``split``. Raises errors of tierstate."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A task, how to read its records now (``split``), and what to do with them (``work``)."""

    task: Task
    split: PlannedSplit
    access: LogAccess
    work: Work

    @property
    def number(self) -> int:
        return self.task.number

    def made(self) -> Any:
        """Do the job, in any process, and return its outcome. Raises errors of tierstate."""
        with closing(records_of(self.split, self.access)) as batches:
            return self.work.outcome(self.task, self.split, batches)


def records_of(split: PlannedSplit, access: LogAccess) -> Generator[pa.RecordBatch, None, None]:
    """Yield exactly the records of a split. Close the generator after use."""
    with access.reads([split], SystemClock()) as reads:
        yield from reads.records(split)
