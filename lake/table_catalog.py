"""A catalog of tables, opened with pyiceberg's properties. It loads, creates and drops tables of tierstate."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError, NotInstalledError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID, SetLocationUpdate

from ..state.errors import InvalidRequest, TierstateError
from ..values.schema_registry import RegistryAccess
from .table import LakeTable, own_location
from .table_errors import foreign
from .table_facts import TOPIC, TableFacts, iceberg_schema, require_columns
from .table_metadata import ForeignMetadata, metadata_below
from .table_place import TablePlace
from .table_shape import UNPARTITIONED, TableShape

NAME = "tierstate"
"""The name of the catalog. pyiceberg requires a name, and a SQL catalog stores it in its rows."""


class LakeCatalog:
    """The tables of a catalog, by name. Methods raise StorageUnavailable, AccessDenied and InvalidRequest."""

    def __init__(self, properties: Mapping[str, str], registry: RegistryAccess | None = None) -> None:
        """``registry``: the registry of the schemas of typed tables, if there is one."""
        self._registry = registry
        with foreign(catalog=properties.get("uri")):
            try:
                self._catalog: Catalog = load_catalog(NAME, **properties)
            except (ValueError, TypeError, ImportError, NotInstalledError) as error:
                raise InvalidRequest("no such catalog", reason=str(error)) from error

    def table(self, name: str) -> LakeTable:
        """Load a table. Raises InvalidRequest if it does not exist or tierstate did not create it."""
        with foreign(table=name):
            loaded = self._catalog.load_table(_identifier(name))
        return LakeTable(loaded, self._registry)

    def names(self) -> Iterator[str]:
        """Yield the names of all tables in order, including tables that tierstate did not create."""
        with foreign():
            for namespace in self._namespaces(()):
                for each in sorted(self._catalog.list_tables(namespace)):
                    yield ".".join(each)

    def _namespaces(self, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield all namespaces below ``parent``. A namespace comes before those nested in it."""
        for each in sorted(self._catalog.list_namespaces(parent)):
            if len(each) > len(parent):  # Glue and Hive have no nested namespaces and list the parent again
                yield each
                yield from self._namespaces(each)

    def ours(self, loaded: Container[str] = ()) -> dict[str, TierstateError | None]:
        """Return the tables that follow a topic, with None, and tables that cannot be loaded, with the error.

        ``loaded``: tables that the caller has loaded, which follow a topic.
        """
        reasons: dict[str, TierstateError | None] = {}
        for name in self.names():
            if name in loaded:
                reasons[name] = None
                continue
            try:
                with foreign(table=name):
                    properties = self._catalog.load_table(_identifier(name)).properties
            except TierstateError as error:
                reasons[name] = error
                continue
            if TOPIC in properties:
                reasons[name] = None
        return reasons

    def table_at(self, name: str, location: str) -> LakeTable:
        """Return the table as the newest metadata file below ``location`` describes it, whatever the catalog has.

        Raises InvalidRequest if there is no metadata file, or if another file there is not an ancestor of the newest.
        """
        with foreign(table=name, location=location):
            io = self._catalog._load_file_io(location=location)
        files = metadata_below(io, location, name)
        if not files:
            raise InvalidRequest("no metadata of a table below this location", table=name, location=location)
        newest = files[-1]
        others = [each.url for each in files[:-1] if not newest.is_after(each.url)]
        if others:
            raise InvalidRequest(
                "several metadata files may be the newest; move those away that are not the table's",
                table=name,
                metadata=" ".join([newest.url, *others]),
            )
        return self.table_with(name, newest, io)

    def table_with(self, name: str, metadata: ForeignMetadata, io: FileIO) -> LakeTable:
        """Return the table as this metadata file describes it. Raises InvalidRequest if tierstate did not create it."""
        table = Table(_identifier(name), metadata.metadata, metadata.url, io, self._catalog)
        return LakeTable(table, self._registry)

    def point(self, name: str, metadata_url: str) -> None:
        """Make the catalog name this metadata file for a table, whatever file it named before.

        If the process is killed during this, the catalog has no such table. The same call again completes the change.
        """
        with foreign(table=name):
            with suppress(NoSuchTableError):
                self._catalog.drop_table(_identifier(name))
            self._catalog.create_namespace_if_not_exists(_identifier(name)[:-1])
            self._catalog.register_table(_identifier(name), metadata_url)

    def create(self, name: str, facts: TableFacts, shape: TableShape = UNPARTITIONED) -> LakeTable:
        """Create an empty table. Raises InvalidRequest if the name is taken."""
        definition = _definition(facts, shape)
        with foreign(table=name):
            self._catalog.create_namespace_if_not_exists(_identifier(name)[:-1])
            try:
                created = self._catalog.create_table(_identifier(name), **definition, properties=facts.as_properties())
            except TableAlreadyExistsError as error:
                raise InvalidRequest("there is a table of this name", table=name) from error
            # before the first row, so that a second table of this name never shares a folder with this one
            own = own_location(created.location(), created.metadata.table_uuid)
            self._catalog.commit_table(
                created, (AssertTableUUID(uuid=created.metadata.table_uuid),), (SetLocationUpdate(location=own),)
            )
            created = self._catalog.load_table(_identifier(name))
            if facts.branch != MAIN_BRANCH:
                _begin_branch(created, facts)
        return LakeTable(created, self._registry)

    def drop(self, name: str) -> None:
        """Remove a table from the catalog, but keep its files."""
        with foreign(table=name):
            self._catalog.drop_table(_identifier(name))

    def close(self) -> None:
        with foreign():
            self._catalog.close()


def _begin_branch(table: Table, facts: TableFacts) -> None:
    """Create the branch. pyiceberg writes one only where main has a snapshot: so main gets one, without rows."""
    summary = TablePlace({}).as_summary(facts.topic_id, "created")
    with table.transaction() as transaction:
        with transaction.update_snapshot(snapshot_properties=summary).merge_append():
            pass
    begun = table.current_snapshot()
    assert begun is not None
    table.manage_snapshots().create_branch(begun.snapshot_id, facts.branch).commit()


def require_new(catalog: LakeCatalog, name: str, facts: TableFacts, shape: TableShape = UNPARTITIONED) -> None:
    """Raise InvalidRequest if `LakeCatalog.create` would."""
    _definition(facts, shape)
    _identifier(name)
    if name in catalog.names():
        raise InvalidRequest("there is a table of this name", table=name)


def _definition(facts: TableFacts, shape: TableShape) -> dict[str, Any]:
    """Return the schema and the shape of a new table."""
    require_columns(facts.columns)
    schema = iceberg_schema(facts.columns.schema())
    spec, order = shape.spec(schema, facts.columns), shape.order(schema, facts.columns)
    return {"schema": schema, "partition_spec": spec, "sort_order": order}


def _identifier(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(parts):
        raise InvalidRequest("a table is named namespace.table", table=name)
    return parts
