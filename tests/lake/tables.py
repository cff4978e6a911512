"""A table of a golden log, in a SQL catalog in a file: real pyiceberg, real Parquet, no broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN, TOPIC_ID, digest_of
from tierstate.app.opening.split_reads import LogAccess, SplitReads
from tierstate.fetch.piece import records
from tierstate.fetch.planned_split import PlannedSplit
from tierstate.lake.columns import Columns
from tierstate.lake.log import TopicLog
from tierstate.lake.table import Change, LakeTable
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_commit import commit
from tierstate.lake.table_facts import TableFacts
from tierstate.lake.table_files import Attempt
from tierstate.lake.table_follow import Means, Round, Step, TableLimits, follow_round, look_at
from tierstate.lake.table_shape import TableShape
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.clock import Clock
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.operation import Operation, run
from tierstate.state.ids import FactId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation
from tierstate.values.schema_registry import RegistryAccess

NAME = "kafka.t"
BYTES = Columns(EVERY_COLUMN)
SMALL = TableLimits(file_bytes=6_000, commit_bytes=20_000)
"""Small enough that a golden log makes several commits of several files."""


BY_DAY = TableShape(("day(timestamp)",))


class TableWorld:
    """One golden log and its table; every `table` is loaded again, as another process would."""

    def __init__(
        self,
        golden: Golden,
        folder: Path,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        columns: Columns = BYTES,
        keep: bool = False,
        limits: TableLimits = SMALL,
        local: bool = True,
        properties: Mapping[str, str] | None = None,
        registry: RegistryAccess | None = None,
        grows: tuple[str, ...] = (),
        shape: TableShape = BY_DAY,
        upsert: tuple[str, ...] = (),
    ) -> None:
        """``properties`` are those of another catalog; None means a SQLite catalog in ``folder``."""
        self.golden, self.folder, self.limits, self.local = golden, folder, limits, local
        self.isolation, self.registry, self.means = isolation, registry, Means()
        self.access: LogAccess = self
        self._ids = RandomIds()
        self.properties = properties or {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        (folder / "warehouse").mkdir(parents=True)
        facts = TableFacts("t", TOPIC_ID, isolation, (columns,), keep, grows, upsert=upsert)
        with self.catalog() as catalog:
            catalog.create(NAME, facts, shape)

    @contextmanager
    def catalog(self) -> Iterator[LakeCatalog]:
        catalog = LakeCatalog(self.properties, self.registry)
        yield catalog
        catalog.close()

    def table(self) -> LakeTable:
        return LakeCatalog(self.properties, self.registry).table(NAME)

    def log(self) -> TopicLog:
        return TopicLog(self.golden.reader, "t", self.isolation, self.access, local=self.local)

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        """Yield the reads of these splits, as a `LogAccess` does."""
        local: Any = self.golden.local
        yield SplitReads(self.golden.tiers.store, None, local)

    def round(self, table: LakeTable | None = None) -> Operation[Round]:
        """Return the operation of one round. ``table`` None means that it is loaded now."""
        table, log = table or self.table(), self.log()
        return follow_round(table, log, look_at(table, log), self.attempt_id(), self.limits, self.means)

    def follow(self) -> list[Round]:
        """Run rounds until there is nothing to do."""
        rounds = []
        while (done := run(self.round())).step is not Step.NOTHING:
            assert done.step is not Step.RACED
            rounds.append(done)
        return rounds

    def evolve(self, *columns: Columns) -> None:
        """Evolve the table to each of these columns in turn."""
        for each in columns:
            table = self.table()
            assert run(commit(table, Attempt(self.attempt_id()), Change(table.place(), columns=each)))

    def attempt_id(self) -> str:
        return FactId.of(self._ids.uuid())

    def rows(self) -> pa.Table:
        """Return the rows as any reader of Iceberg sees them, by offset."""
        table = self.table()
        return table.iceberg.scan().to_arrow().sort_by(table.column("offset"))

    def table_digest(self) -> tuple[int, str]:
        return digest_of(self.rows())

    def log_digest(self, start: int = 0, end: int | None = None) -> tuple[int, str]:
        digest = RecordDigest()
        first, last = self.log().extent(0)
        first, last = Offset(max(first, start)), last if end is None else Offset(end)
        for piece in self.golden.reader.scan("t", 0, first, last, isolation=self.isolation):
            for batch in records(piece, "t", 0):
                digest.update(batch)
        return digest.count, digest.hexdigest()

    def data_files(self) -> set[str]:
        """Return all data files in the folder, whether a snapshot names them or not."""
        return {str(each) for each in self.folder.rglob("*.parquet")}

    def named_files(self) -> set[str]:
        """Return the data files that the newest snapshot names."""
        return {each.file_path.removeprefix("file://") for each in self.table().data_files()}

    def first_offset(self) -> int:
        """Return the offset of the log's first record that is shown."""
        return int(self.rows().column("offset")[0].as_py())
