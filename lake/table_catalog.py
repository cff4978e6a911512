"""A catalog of tables, as pyiceberg's own properties say: which of its tables are ours, new ones, and dropped ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from ..log.record_block import record_schema
from ..state.errors import InvalidRequest
from .table import LakeTable, foreign
from .table_facts import TableFacts, require_columns

NAME = "tierstate"
"""Of the catalog, where pyiceberg asks for one: a SQL catalog keeps it in its rows."""
DAY_FIELD_ID = 1000
"""The first one that a partition field may have."""
TYPES: Mapping[str, IcebergType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestamptzType(),
    "timestampType": IntegerType(),
    "headers": ListType(
        101, StructType(NestedField(102, "key", StringType()), NestedField(103, "value", BinaryType())), False
    ),
}
"""Of the columns of `record_block.FIELDS`, every one optional as there. Ids are given anew when a table is made."""


class LakeCatalog:
    """Raises StorageUnavailable, AccessDenied, InvalidRequest."""

    def __init__(self, properties: Mapping[str, str]) -> None:
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
        return LakeTable(found, facts)

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
            if "tierstate.topic" in properties:
                found.append(name)
        return found

    def create(self, name: str, facts: TableFacts) -> LakeTable:
        """An empty table. Raises InvalidRequest where there is one."""
        require_columns(facts.columns)
        schema = _schema(facts.columns)
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
        return LakeTable(made, facts)

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
    _schema(facts.columns)
    _identifier(name)
    if name in catalog.names():
        raise InvalidRequest("there is a table of this name", table=name)


def _identifier(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(parts):
        raise InvalidRequest("a table is named namespace.table", table=name)
    return parts


def _schema(columns: tuple[str, ...]) -> Schema:
    """Raises InvalidRequest for a column that records do not have."""
    names = record_schema(columns=columns).names
    return Schema(*(NestedField(at, name, TYPES[name]) for at, name in enumerate(names, 1)))


def _by_day(schema: Schema) -> PartitionSpec:
    source = schema.find_field("timestamp").field_id
    return PartitionSpec(PartitionField(source, DAY_FIELD_ID, DayTransform(), "timestamp_day"))


def _by_offset(schema: Schema) -> SortOrder:
    fields = [schema.find_field(name).field_id for name in ("partition", "offset")]
    return SortOrder(*(SortField(source_id=each, transform=IdentityTransform()) for each in fields))
