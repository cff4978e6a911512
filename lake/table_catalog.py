"""A catalog of tables, as pyiceberg's own properties say: which of its tables are ours, new ones, and dropped ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AssertTableUUID, SetLocationUpdate
from pyiceberg.transforms import DayTransform, IdentityTransform

from ..state.errors import InvalidRequest
from ..values.schema_registry import RegistryAccess
from .table import LakeTable, foreign, own_location
from .table_facts import TOPIC, TableFacts, require_columns
from .table_types import iceberg_schema

NAME = "tierstate"
"""Of the catalog, where pyiceberg asks for one: a SQL catalog keeps it in its rows."""
DAY_FIELD_ID = 1000
"""The first one that a partition field may have."""


class LakeCatalog:
    """Raises StorageUnavailable, AccessDenied, InvalidRequest."""

    def __init__(self, properties: Mapping[str, str], registry: RegistryAccess | None = None) -> None:
        """``registry``: what the records of typed tables are read with, where their schemas are registered."""
        self._registry = registry
        with foreign(catalog=properties.get("uri")):
            try:
                self._catalog: Catalog = load_catalog(NAME, **properties)
            except (ValueError, TypeError, ImportError) as error:
                raise InvalidRequest("no such catalog", reason=str(error)) from error

    def table(self, name: str) -> LakeTable:
        """Raises InvalidRequest for one that is not there, or none of ours."""
        with foreign(table=name):
            found = self._catalog.load_table(_identifier(name))
        facts = TableFacts.of_properties(found.properties, name)
        if facts is None:
            raise InvalidRequest("the table was not created by tierstate", table=name)
        return LakeTable(found, facts, self._registry)

    def names(self) -> Iterator[str]:
        """Of all tables, in order, ours or not."""
        with foreign():
            for namespace in sorted(self._catalog.list_namespaces()):
                for each in sorted(self._catalog.list_tables(namespace)):
                    yield ".".join(each)

    def ours(self) -> list[str]:
        """Names of the tables that follow a topic."""
        found = []
        for name in self.names():
            with foreign(table=name):
                properties = self._catalog.load_table(_identifier(name)).properties
            if TOPIC in properties:
                found.append(name)
        return found

    def create(self, name: str, facts: TableFacts) -> LakeTable:
        """An empty table. Raises InvalidRequest where there is one."""
        require_columns(facts.columns)
        schema = iceberg_schema(facts.columns.schema())
        namespace = _identifier(name)[:-1]
        with foreign(table=name):
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
            try:
                made = self._catalog.create_table(
                    _identifier(name),
                    schema,
                    partition_spec=_by_day(schema),
                    sort_order=_by_offset(schema),
                    properties=facts.as_properties(),
                )
            except TableAlreadyExistsError as error:
                raise InvalidRequest("there is a table of this name", table=name) from error
            # before the first row: a second table of this name never shares a folder with this one
            own = own_location(made.location(), made.metadata.table_uuid)
            self._catalog.commit_table(
                made, (AssertTableUUID(uuid=made.metadata.table_uuid),), (SetLocationUpdate(location=own),)
            )
            made = self._catalog.load_table(_identifier(name))
        return LakeTable(made, facts, self._registry)

    def drop(self, name: str) -> None:
        """Takes it out of the catalog; its files stay."""
        with foreign(table=name):
            self._catalog.drop_table(_identifier(name))

    def close(self) -> None:
        with foreign():
            self._catalog.close()


def require_new(catalog: LakeCatalog, name: str, facts: TableFacts) -> None:
    """Raises InvalidRequest where `LakeCatalog.create` would."""
    require_columns(facts.columns)
    iceberg_schema(facts.columns.schema())
    _identifier(name)
    if name in catalog.names():
        raise InvalidRequest("there is a table of this name", table=name)


def _identifier(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(parts):
        raise InvalidRequest("a table is named namespace.table", table=name)
    return parts


def _by_day(schema: Schema) -> PartitionSpec:
    source = schema.find_field("timestamp").field_id
    return PartitionSpec(PartitionField(source, DAY_FIELD_ID, DayTransform(), "timestamp_day"))


def _by_offset(schema: Schema) -> SortOrder:
    fields = [schema.find_field(name).field_id for name in ("partition", "offset")]
    return SortOrder(*(SortField(source_id=each, transform=IdentityTransform()) for each in fields))
