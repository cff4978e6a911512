"""A task in any process: an own one of this machine, or an executor of Spark. What travels there is plain values."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

from ..app.split_reads import Access, SplitReads
from ..fetch.packed_splits import SplitWriter, unpacked
from ..fetch.planned_split import PlannedSplit
from ..leader.act import run
from ..runtime.clock import SystemClock
from ..state.errors import TierstateError
from ..storage.open import open_store
from ..storage.options import StoreOptions
from ..values.schema_registry import RegistryAccess
from .check import Finding, check_task
from .ledger import Ledger
from .plan import ExportPlan, ExportTask, TaskDone
from .task import export_task

if TYPE_CHECKING:
    import pyarrow as pa

    from ..storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Place:
    """Where an export goes."""

    url: str
    options: StoreOptions

    def open(self) -> ObjectStore:
        """A folder that is not there is made. Raises InvalidRequest, AccessDenied, MissingExtra."""
        return open_store(self.url, self.options, clock=SystemClock(), make=True)

    def is_there(self) -> bool:
        """False: a folder that nobody made yet."""
        return not self.url.startswith("file:") or os.path.isdir(unquote(urlsplit(self.url).path))


@dataclass(frozen=True, slots=True)
class TaskAccess:
    """To the log, to the place, and to a schema registry where there is one; credentials included."""

    log: Access
    place: Place
    registry: RegistryAccess | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A task, and how its records are read now. ``plan``: without its tasks. ``done``: to be checked; None: to do."""

    plan: ExportPlan
    task: ExportTask
    splits: bytes
    access: TaskAccess
    done: TaskDone | None = None


Made: TypeAlias = TaskDone | list[Finding]
Outcome: TypeAlias = Made | TierstateError
Run: TypeAlias = Callable[[list[Job]], Iterator[tuple[int, Outcome]]]
"""Does jobs, several at a time; yields each one's number and what came of it, as they end. An error of ours is an
outcome; any other passes through, and ends the others. Closed, it ends them too."""


def job_of(plan: ExportPlan, task: ExportTask, split: PlannedSplit, access: TaskAccess) -> Job:
    return Job(replace(plan, tasks=()), task, SplitWriter().packed([split]), access)


def do(job: Job) -> tuple[int, Outcome]:
    """In whatever process."""
    try:
        return job.task.number, _made(job)
    except TierstateError as error:
        return job.task.number, error


def _made(job: Job) -> Made:
    registry = job.access.registry
    with closing(job.access.place.open()) as place, _records(job) as batches:
        if job.done is not None:
            return check_task(job.plan, job.task, job.done, batches, place, registry)
        return run(export_task(job.plan, job.task, batches, Ledger(place, job.plan.topic_id), registry))


@contextmanager
def _records(job: Job) -> Iterator[Iterator[pa.RecordBatch]]:
    splits = unpacked(job.splits)
    with job.access.log.reads(splits, SystemClock()) as reads, closing(_decoded(splits, reads)) as batches:
        yield batches


def _decoded(splits: tuple[PlannedSplit, ...], reads: SplitReads) -> Generator[pa.RecordBatch, None, None]:
    for split in splits:
        yield from reads.records(split)


def here(jobs: list[Job]) -> Iterator[tuple[int, Outcome]]:
    """A `Run` in this process, one after another."""
    yield from map(do, jobs)
