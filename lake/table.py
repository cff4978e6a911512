"""One Iceberg table of tierstate, accessed through pyiceberg: its place (see `table_place`), its files and its commits.

A commit succeeds only if the table is still as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ResolveError, ValidationError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry, ancestors_of
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record

from ..state.errors import AccessDenied, CorruptData, InvalidRequest, StorageUnavailable, Unavailable, UnknownOutcome
from ..state.offsets import Extent, Offset
from ..values.schema_registry import RegistryAccess
from .columns import Columns, Rows
from .table_errors import foreign
from .table_facts import TableFacts, columns_property, iceberg_schema, own_bounds_alone
from .table_layout import Key, Layout
from .table_place import ATTEMPT, OFFSETS, TablePlace, place_kept, place_property, summary_of
from .table_shape import TableShape

if TYPE_CHECKING:
    from pyiceberg.table import DataScan, Table, Transaction

RETRIES = "commit.retry.num-retries"
WRITABLE_FORMAT = 2
"""Iceberg's newest format version that pyiceberg writes: its `TableMetadataV3` raises NotImplementedError."""
FIRST_SEQUENCE_NUMBER = 1
"""The sequence number of a table's first snapshot."""
for _frozen in (Snapshot, SnapshotLogEntry, Schema, PartitionSpec, SortOrder):
    # pyiceberg copies all metadata deeply, 17 times per commit (its issue 2673); these values are frozen
    setattr(_frozen, "__deepcopy__", lambda self, memo: self)  # noqa: B010


@dataclass(frozen=True, slots=True)
class Change:
    """The content of one commit: files to add, files to remove, and the new place of the table.

    ``columns``: the columns of the table's next version. ``shape``: its next partitions and sort order.

    A change of columns or shape makes a snapshot too, so that its commit is conditional. Otherwise two writers could
    both evolve a table to columns that are equal in Iceberg (smallint and int). The second commit would then change a
    version that rows were already written with.
    """

    place: TablePlace
    add: Sequence[DataFile] = ()
    drop: Sequence[DataFile] = ()
    columns: Columns | None = None
    shape: TableShape | None = None


class PlaceLost(CorruptData):
    """Neither a snapshot nor the property of the table has a valid place. The place can be computed from the rows."""


class LakeTable:
    """A table as it was when it was loaded or last refreshed. Methods raise StorageUnavailable if the catalog or the
    files are unavailable. They also raise AccessDenied, and InvalidRequest for a deleted table.
    """

    def __init__(self, table: Table, registry: RegistryAccess | None = None) -> None:
        """``registry``: the registry of the table's schemas. Raises the errors of `TableFacts.of_properties`."""
        self.iceberg, self.registry = table, registry
        self.name = ".".join(table.name())
        self._read_facts()

    def refresh(self) -> None:
        """Load the table as it is now."""
        with foreign(table=self.name):
            self.iceberg.refresh()
        self._read_facts()

    def _read_facts(self) -> None:
        self.facts = TableFacts.of_properties(self.iceberg.properties, self.name)
        # pyiceberg would repeat a failed append on top of another writer's commit, and two followers would both add the
        # same records. The table itself keeps the property, by which other engines repeat their maintenance.
        metadata = self.iceberg.metadata
        properties = {**metadata.properties, RETRIES: "0"}
        self.iceberg.metadata = metadata.model_copy(update={"properties": properties})

    @property
    def head(self) -> Snapshot | None:
        """Return the newest snapshot of the table's branch. Raises InvalidRequest if the branch was removed."""
        branch = self.facts.branch
        if branch != MAIN_BRANCH and branch not in self.iceberg.refs():
            raise InvalidRequest("the branch of this table was removed", table=self.name, branch=branch)
        return self.iceberg.snapshot_by_name(branch)

    def _scan(self, where: str | BooleanExpression | None) -> DataScan:
        scan = self.iceberg.scan(row_filter=where or AlwaysTrue())
        return scan if self.facts.branch == MAIN_BRANCH else scan.use_ref(self.facts.branch)

    def place(self) -> TablePlace:
        """Return the place of the newest snapshot that has one. If that snapshot was expired, return the property's
        place.

        Snapshots of other engines have no place. The place is empty if no snapshot ever had one. Raises PlaceLost if
        the property does not fit the rows.
        """
        current = last = self.head
        for last in ancestors_of(current, self.iceberg.metadata):
            if OFFSETS in (summary := summary_of(last)):
                return TablePlace.of_summary(summary, self.facts.topic_id)
        # the child of an expired snapshot looks like the first snapshot: only the sequence number shows the difference
        if last is None or last.sequence_number == FIRST_SEQUENCE_NUMBER:
            return TablePlace({})
        place = place_kept(self.iceberg.properties, self.facts.topic_id, current)
        if place is None or not self._fits(place):
            raise PlaceLost(
                "the snapshots that said how far this table is were expired by another tool, and its property"
                f" does not fit its rows; `tierstate table repair {self.name}` finds the place again",
                table=self.name,
            )
        return place

    @property
    def is_place_covered(self) -> bool:
        """Return whether another engine made the newest snapshot, which then has no place."""
        return (head := self.head) is not None and OFFSETS not in summary_of(head)

    def _fits(self, place: TablePlace) -> bool:
        """Return whether every file that has rows of one Kafka partition lies within the place."""
        for file in self.data_files():
            if (own := self.extent_of(file)) is not None:
                number, (start, end) = own
                reach = place.partitions.get(number)
                if reach is None or not reach.start <= start < end <= reach.end:
                    return False
        return True

    def extent_of(self, file: DataFile) -> tuple[int, Extent] | None:
        """Return the Kafka partition and the offsets (end exclusive) of a file, from the bounds in its manifest entry.

        Returns None if the file has several partitions or no bounds: then another engine wrote it.
        """
        first, last = (self._bounds(each) for each in (file.lower_bounds, file.upper_bounds))
        if first is None or last is None or first[0] != last[0]:
            return None
        return first[0], Extent(Offset(first[1]), Offset(last[1] + 1))

    def _bounds(self, bounds: Mapping[int, bytes]) -> tuple[int, int] | None:
        """Return the bounds of the partition and of the offset. Returns None if one of them is missing."""
        ids = [self.iceberg.schema().find_field(name).field_id for name in (self.source, self.column("offset"))]
        partition, offset = (bounds.get(each) for each in ids)
        if partition is None or offset is None:
            return None
        return int.from_bytes(partition, "little", signed=True), int.from_bytes(offset, "little", signed=True)

    def column(self, name: str) -> str:
        """Return the column that has this part of a record, such as ``offset``."""
        return self.facts.columns.column(name)

    @property
    def source(self) -> str:
        """Return the column that has the number of a row's partition."""
        return self.facts.columns.source

    def between(self, partition: int, start: int, end: int) -> str:
        """Return an Iceberg filter for the rows of the offsets ``[start, end)``."""
        offset = self.column("offset")
        return f"{self.source} == {partition} and {offset} >= {start} and {offset} < {end}"

    @property
    def has_own_location(self) -> bool:
        """Return whether only this table writes below its location. Earlier versions let tables share a location."""
        return self.iceberg.location().rstrip("/").endswith(f"-{self.iceberg.metadata.table_uuid}")

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the files, with Iceberg's field ids."""
        return schema_to_pyarrow(self.iceberg.schema(), include_field_ids=True)

    @property
    def layout(self) -> Layout:
        """Return how rows are divided into files."""
        return Layout(self.iceberg.metadata, self.facts.columns)

    def rows_by(self, version: int) -> Rows:
        """Return a maker of rows with this version of the columns. Raises CorruptData if the version is unknown."""
        if version >= len(self.facts.versions):
            raise CorruptData("the table does not say what these columns were", table=self.name, version=version)
        return Rows(self.facts.versions[version], self.registry)

    def new_rows(self) -> Rows:
        """Return a maker of new rows. It raises ColumnsGrown if a column that may grow needs new fields."""
        return Rows(self.facts.columns, self.registry, grows=self.facts.grows)

    def data_files(self, where: str | BooleanExpression | None = None) -> list[DataFile]:
        """Return the files that may have rows for which ``where`` holds. Raises InvalidRequest if another engine
        deleted rows with delete files.
        """
        with foreign(table=self.name):
            tasks = list(self._scan(where).plan_files())
        if any(task.delete_files for task in tasks):
            raise InvalidRequest(
                "another engine deleted rows of this table by delete files, which are not rewritten here; let it"
                " compact the table first",
                table=self.name,
            )
        return [task.file for task in tasks]

    def count(self, where: str | None = None) -> int:
        """Return the number of rows."""
        with foreign(table=self.name):
            return self._scan(where).count()

    def url(self, name: str) -> str:
        """Return the URL of a data file of this name."""
        return f"{self.iceberg.location().rstrip('/')}/data/{name}"

    def put(self, url: str, pieces: Iterable[bytes], partition: Key) -> DataFile:
        """Write a new file of a partition of the current spec, and return its manifest entry. If writing fails, the
        file is removed if possible.
        """
        with foreign(table=self.name, file=url):
            output = self.iceberg.io.new_output(url).create()  # outside the try: another writer's file is kept
        try:
            with foreign(table=self.name, file=url):
                with output as into:
                    for piece in pieces:
                        into.write(piece)
                return self._described(url, partition)
        except BaseException:
            with suppress(StorageUnavailable, AccessDenied):
                self.remove(url)
            raise

    def _described(self, url: str, partition: Key) -> DataFile:
        """Return the manifest entry of a file. If pyiceberg cannot compute all bounds, only the columns of
        `own_bounds_alone` get bounds.

        pyiceberg fails for a text whose upper bound would be a surrogate (U+D800), and for dates and times of the year
        10000.
        """
        metadata, source = self.iceberg.metadata, self.iceberg.io.new_input(url)
        with source.open() as stream:
            parquet = pq.read_metadata(stream)
        try:
            statistics = self._statistics(parquet, metadata.properties)
        except (OverflowError, ValueError):
            statistics = self._statistics(parquet, {**metadata.properties, **own_bounds_alone(self.facts.columns)})
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=url,
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            file_size_in_bytes=len(source),
            sort_order_id=metadata.default_sort_order_id,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )

    def _statistics(self, parquet: pq.FileMetaData, properties: dict[str, str]) -> dict[str, Any]:
        schema = self.iceberg.schema()
        plan, ids = compute_statistics_plan(schema, properties), parquet_path_to_id_mapping(schema)
        return data_file_statistics_from_parquet_metadata(parquet, plan, ids).to_serialized_dict()

    def remove(self, url: str) -> None:
        """Remove a file that no commit names. A missing file is not an error."""
        with foreign(table=self.name, file=url), suppress(FileNotFoundError):
            self.iceberg.io.delete(url)

    @contextmanager
    def opened(self, url: str) -> Iterator[BinaryIO]:
        """Open a data file for random reads. Raises CorruptData if the file is missing or damaged."""
        with foreign(table=self.name, file=url):
            with self.iceberg.io.new_input(url).open() as source:
                yield cast(BinaryIO, source)

    def prepared(self, change: Change, attempt: str) -> Transaction:
        """Write the manifests and return the transaction. Its commit is conditional on the snapshot that was read."""
        if (version := self.iceberg.metadata.format_version) > WRITABLE_FORMAT:
            raise InvalidRequest(
                f"another engine made this a table of Iceberg's format {version}; pyiceberg writes none above"
                f" {WRITABLE_FORMAT}, so the table only stays as it is",
                table=self.name,
            )
        with foreign(table=self.name):
            transaction = self.iceberg.transaction()
            if change.columns is not None:
                self._evolve(transaction, change.columns)
            if change.shape is not None:
                change.shape.apply(transaction, self.facts.columns)
            update = transaction.update_snapshot(
                snapshot_properties=change.place.as_summary(self.facts.topic_id, attempt), branch=self.facts.branch
            )
            with _one_at_a_time(update.overwrite()) if change.drop else update.merge_append() as snapshot:
                for each in change.drop:
                    snapshot.delete_data_file(each)
                for each in change.add:
                    snapshot.append_data_file(each)
            snapshot_made = transaction.table_metadata.snapshot_by_name(self.facts.branch)
            assert snapshot_made is not None
            transaction.set_properties(place_property(snapshot_made))
        return transaction

    def _evolve(self, transaction: Transaction, columns: Columns) -> None:
        try:
            with transaction.update_schema() as schema:
                schema.union_by_name(iceberg_schema(columns.schema()))
        except (ValueError, ValidationError, ResolveError) as error:
            raise InvalidRequest(
                "the columns of a table cannot become these", table=self.name, reason=str(error)
            ) from error
        transaction.set_properties(columns_property(self.facts.version + 1, columns))

    def commit(self, transaction: Transaction, attempt: str) -> bool:
        """Commit, and load the table as it is now. Returns False if another writer committed first: nothing changed.

        Raises UnknownOutcome if it is unknown whether the commit succeeded. Keep the files then: the table may use
        them.
        """
        try:
            transaction.commit_transaction()
        except Exception as error:
            failure = error
        else:
            self._read_facts()
            return True
        unknown = UnknownOutcome(
            "the catalog did not say whether a commit landed; the table's place says it later",
            table=self.name,
            attempt=attempt,
            reason=repr(failure),
        )
        try:
            self.refresh()
        except Unavailable:  # the catalog became unavailable in the meantime
            raise unknown from failure
        if self.landed(attempt):
            return True
        if isinstance(failure, CommitFailedException):
            return False
        raise unknown from failure

    def landed(self, attempt: str) -> bool:
        """Return whether this attempt made a snapshot that the table still has."""
        return any(summary_of(snapshot).get(ATTEMPT) == attempt for snapshot in self.iceberg.snapshots())


def own_location(default: str, table_uuid: UUID) -> str:
    """Return the location of a new table: the catalog's default, made unique by the table's UUID."""
    return f"{default.rstrip('/')}-{table_uuid}"


def _one_at_a_time(overwrite: Any) -> Any:
    """Serialize the evaluator that tells which manifests may name a dropped file. pyiceberg's threads share the
    evaluator, which stores its input in itself. Two concurrent calls can get each other's answer, and then a file seems
    missing (decision 0092).
    """
    build, lock = overwrite._build_manifest_evaluator, Lock()

    def evaluator(spec_id: int) -> Callable[[ManifestFile], bool]:
        shared = build(spec_id)

        def may_name(manifest: ManifestFile) -> bool:
            with lock:
                return bool(shared(manifest))

        return may_name

    overwrite._build_manifest_evaluator = evaluator
    return overwrite
