"""The work on tasks of an export, which any process can do: write the files of one, or compare them with the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..app.opening.split_reads import LogAccess
from ..fetch.planned_split import PlannedSplit
from ..runtime.clock import SystemClock
from ..runtime.operation import run
from ..storage.open import open_store
from ..storage.options import StoreOptions
from ..values.schema_registry import RegistryAccess
from .export_plan import ExportPlan, TaskDone
from .jobs import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from ..storage.object_store import ObjectStore
    from .task_check import TaskChecked


@dataclass(frozen=True, slots=True)
class Place:
    """The place that an export writes to."""

    url: str
    options: StoreOptions

    def open(self) -> ObjectStore:
        """Open the store. A missing folder is created. Raises InvalidRequest, AccessDenied and MissingExtra."""
        return open_store(self.url, self.options, clock=SystemClock(), make=True)

    def is_there(self) -> bool:
        """Return False if the place is a folder that does not exist yet, else True."""
        return not self.url.startswith("file:") or os.path.isdir(unquote(urlsplit(self.url).path))


@dataclass(frozen=True, slots=True)
class TaskAccess:
    """Access to the log, to the place, and to a schema registry if there is one, including credentials."""

    log: LogAccess
    place: Place
    registry: RegistryAccess | None = None


@dataclass(frozen=True, slots=True)
class ExportWork:
    """Writes the files of a task, or compares them with the log, in any process.

    ``plan``: without tasks. ``done``: the outcome to compare with the log; None means to write the files.
    """

    plan: ExportPlan
    access: TaskAccess
    done: TaskDone | None = None

    def outcome(self, task: Task, split: PlannedSplit, batches: Iterator[pa.RecordBatch]) -> TaskDone | TaskChecked:
        # imported here: kernels load slowly, and a process that only plans reads no record
        from .export_ledger import Ledger
        from .export_task import export_task
        from .task_check import check_task

        registry = self.access.registry
        with closing(self.access.place.open()) as place:
            if self.done is not None:
                return check_task(self.plan, task, self.done, batches, place, registry)
            ledger = Ledger(place, self.plan.topic_id)
            return run(export_task(self.plan, task, batches, ledger, registry, split.skipped))
