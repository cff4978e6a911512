"""A task in any process: one of this machine, or an executor of Spark. Only plain values are sent there."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

from ..app.split_reads import LogAccess, SplitReads
from ..fetch.packed_splits import SplitWriter, unpacked
from ..fetch.planned_split import PlannedSplit, Skipped
from ..leader.act import run
from ..runtime.clock import SystemClock
from ..state.errors import TierstateError
from ..storage.open import open_store
from ..storage.options import StoreOptions
from ..values.schema_registry import RegistryAccess
from .ledger import Ledger
from .plan import ExportPlan, ExportTask, TaskDone

if TYPE_CHECKING:
    import pyarrow as pa

    from ..storage.object_store import ObjectStore
    from .check import TaskChecked


@dataclass(frozen=True, slots=True)
class Place:
    """The place that an export writes to."""

    url: str
    options: StoreOptions

    def open(self) -> ObjectStore:
        """Open the store; a missing folder is created. Raises InvalidRequest, AccessDenied, MissingExtra."""
        return open_store(self.url, self.options, clock=SystemClock(), make=True)

    def is_there(self) -> bool:
        """Return False for a folder that does not exist yet."""
        return not self.url.startswith("file:") or os.path.isdir(unquote(urlsplit(self.url).path))


@dataclass(frozen=True, slots=True)
class TaskAccess:
    """Access to the log, to the place, and to a schema registry where there is one; credentials included."""

    log: LogAccess
    place: Place
    registry: RegistryAccess | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A task, and how to read its records now. ``plan``: without tasks. ``done``: what to check; None: do the task."""

    plan: ExportPlan
    task: ExportTask
    splits: bytes
    access: TaskAccess
    done: TaskDone | None = None
    skipped: tuple[Skipped, ...] = ()

    @property
    def number(self) -> int:
        return self.task.number

    def made(self) -> Made:
        # not at the top: kernels take longer to load than all else, and a planning process reads no record
        from .check import check_task
        from .task import export_task

        registry = self.access.registry
        with closing(self.access.place.open()) as place, records_of(self.splits, self.access.log) as batches:
            if self.done is not None:
                return check_task(self.plan, self.task, self.done, batches, place, registry)
            ledger = Ledger(place, self.plan.topic_id)
            return run(export_task(self.plan, self.task, batches, ledger, registry, self.skipped))


Made: TypeAlias = "TaskDone | TaskChecked"
Outcome: TypeAlias = "Made | TierstateError"
Run: TypeAlias = Callable[[list[Job]], Iterator[tuple[int, Outcome]]]
"""Does jobs, several at a time; yields the number and the outcome of each, as they end. An error of tierstate is an
outcome; any other passes through, and ends the other jobs. Closing it ends them too."""


def job_of(plan: ExportPlan, task: ExportTask, split: PlannedSplit, access: TaskAccess) -> Job:
    alone = replace(plan, tasks=(), skipped=())
    return Job(alone, task, SplitWriter().packed([split]), access, skipped=split.skipped)


@contextmanager
def records_of(packed: bytes, access: LogAccess) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the records of packed splits, one after another."""
    splits = unpacked(packed)
    with access.reads(splits, SystemClock()) as reads, closing(_decoded(splits, reads)) as batches:
        yield batches


def _decoded(splits: tuple[PlannedSplit, ...], reads: SplitReads) -> Generator[pa.RecordBatch, None, None]:
    for split in splits:
        yield from reads.records(split)
