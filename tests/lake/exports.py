"""An export of a golden log whose tasks run in this process, on the stores of the test."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fetch.two_tiers import Golden
from tierstate.app.opening.connection import Advance
from tierstate.app.opening.split_reads import Access
from tierstate.app.opening.store_place import StorePlace
from tierstate.fetch.piece import records
from tierstate.fetch.split import read_split
from tierstate.lake.columns import Columns
from tierstate.lake.export import Export, Wanted
from tierstate.lake.export_ledger import Ledger
from tierstate.lake.export_plan import Shape, TaskDone
from tierstate.lake.export_task import export_task
from tierstate.lake.export_work import ExportWork, Place, TaskAccess
from tierstate.lake.jobs import Job
from tierstate.lake.log import OwnLog
from tierstate.lake.parquet import WRITER
from tierstate.lake.runs import Run
from tierstate.lake.task_check import check_task
from tierstate.log.record_columns import record_schema
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.operation import Operation
from tierstate.state.errors import TierstateError
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.values.schema_registry import RegistryAccess

TOPIC_ID = TopicId.of(b"golden-topic-id!")
NOWHERE = Access({}, StorePlace("memory:", StoreOptions()), None)
EVERY_COLUMN = tuple(record_schema().names)


class Killed(Exception):
    """The process of a test died."""


class World:
    """One golden log, and a place for its export. Small ``group_bytes`` and ``file_bytes`` make many of both."""

    def __init__(
        self,
        golden: Golden,
        place: ObjectStore | None = None,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        columns: tuple[str, ...] | Columns = EVERY_COLUMN,
        group_bytes: int = 20_000,
        file_bytes: int = 60_000,
        registry: RegistryAccess | None = None,
    ) -> None:
        self.golden, self.place = golden, place or MemoryStore()
        self.shape = Shape(
            columns if isinstance(columns, Columns) else Columns(columns), isolation, group_bytes, WRITER
        )
        self.file_bytes, self.registry = file_bytes, registry
        self.kept: list[Any] = []
        self.told: list[tuple[str, int | None, list[int]]] = []
        """Label, total, and the progress that was reported."""
        self.piece_bytes = 8 << 20
        self.dies_at: int | None = None
        """The number of steps, of all tasks, after which it dies; None: it lives."""

    @contextmanager
    def progress(self, label: str, total: int | None = None, /) -> Iterator[Advance]:
        """Keep label, total and progress, as a `ShowProgress` does."""
        advanced: list[int] = []
        self.told.append((label, total, advanced))
        yield advanced.append

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.place, TOPIC_ID)

    def export(self, run: Run | None = None) -> Export:
        return Export(
            OwnLog(self.golden.reader),
            self.ledger,
            TaskAccess(NOWHERE, Place("memory:", StoreOptions()), self.registry),
            run or self.here,
            self.kept.append,
            self.progress,
        )

    def wanted(self, start: int = 0, end: int | None = None) -> Wanted:
        last = self.end if end is None else end
        return Wanted("t", {0: Extent(Offset(start), Offset(last))}, self.shape, self.file_bytes)

    @property
    def end(self) -> int:
        return self.golden.folder.end()

    def here(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        """Run the jobs in this process, as a `Run` does."""
        for job in jobs:
            try:
                yield job.task.number, self._made(job)
            except TierstateError as error:
                yield job.task.number, error

    def _made(self, job: Job) -> Any:
        work, batches = job.work, self.batches(job)
        assert isinstance(work, ExportWork)
        if work.done is not None:
            return check_task(work.plan, job.task, work.done, batches, self.place, self.registry)
        done: TaskDone = self._alive(
            export_task(work.plan, job.task, batches, self.ledger, self.registry, job.split.skipped)
        )
        return done

    def batches(self, job: Job) -> Iterator[pa.RecordBatch]:
        local: Any = self.golden.local
        split = job.split
        for piece in read_split(split, self.golden.tiers.store, local, piece_bytes=self.piece_bytes):
            yield from records(piece, split.topic, split.partition)

    def _alive(self, act: Operation[Any]) -> Any:
        while True:
            try:
                next(act)
            except StopIteration as ended:
                return ended.value
            if self.dies_at is not None:
                if self.dies_at == 0:
                    raise Killed
                self.dies_at -= 1

    def objects(self) -> dict[str, bytes]:
        return {each.key: self.place.get(each.key) for each in self.place.list()}

    def tables(self) -> list[pa.Table]:
        """Return the rows of every file, as any reader of Parquet sees them."""
        return [pq.read_table(io.BytesIO(data)) for key, data in self.objects().items() if key.endswith(".parquet")]

    def digest(self) -> tuple[int, str]:
        """Return how many records all files have, and their record digest in the order of offsets."""
        return digest_of(pa.concat_tables(self.tables()).sort_by("offset"))


def digest_of(table: pa.Table) -> tuple[int, str]:
    digest = RecordDigest()
    digest.update(table.cast(record_schema()))
    return digest.count, digest.hexdigest()
