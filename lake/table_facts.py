"""The facts of a table, stored as its properties: which topic it follows, and how. They are written when the table is
created. Each evolution of the schema adds a property: `tierstate.columns.1` and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import StructType

from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.routing import Isolation
from .columns import Columns

TOPIC, TOPIC_ID = "tierstate.topic", "tierstate.topic-id"
ISOLATION, COLUMNS, KEEP, GROWS = "tierstate.isolation", "tierstate.columns", "tierstate.keep", "tierstate.grows"
BRANCH = "tierstate.branch"
UPSERT = "tierstate.upsert"
MORE, DEAD_LETTER = "tierstate.more-topic-ids", "tierstate.dead-letter"

WRITTEN = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of every table."""
MANIFEST_BYTES = "commit.manifest.target-size-bytes"
"""Iceberg's property: manifests are merged up to this size. A merge copies entries one by one, within a commit: so
about 100 entries, whose size grows with the number of columns.
"""
NO_VALUE_BOUNDS = {"write.metadata.metrics.column.value": "none"}
"""Iceberg's table property that keeps no bounds for values. Flat tables have bounds for each field of a value."""
NEEDED = ("partition", "offset", "timestamp")
"""Every table has these columns: without them a row could not be identified or removed."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """``versions``: the versions of the columns, the newest last. Each row was written with one version. ``keep``: the
    table is an archive, which keeps rows that the log deleted. ``grows``: which of `key` and `value` grow with the
    registry. ``branch``: the branch of the table that has the rows. ``upsert``: the columns of the key whose newest
    record is a row; empty if each record is a row. ``more``: the ids of the columns' topics after the first.
    ``dead_letter``: the table that has what does not parse; empty if this one has it.
    """

    topic: str
    topic_id: TopicId
    isolation: Isolation
    versions: tuple[Columns, ...]
    keep: bool
    grows: tuple[str, ...] = ()
    branch: str = MAIN_BRANCH
    upsert: tuple[str, ...] = ()
    more: tuple[TopicId, ...] = ()
    dead_letter: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics of the table."""
        return self.columns.topics or (self.topic,)

    @property
    def columns(self) -> Columns:
        """Return the columns of new rows."""
        return self.versions[-1]

    @property
    def version(self) -> int:
        """Return the number of the newest version, which new rows have."""
        return len(self.versions) - 1

    def as_properties(self) -> dict[str, str]:
        properties = {
            TOPIC: self.topic,
            TOPIC_ID: str(self.topic_id),
            ISOLATION: self.isolation.value,
            KEEP: "true" if self.keep else "false",
            GROWS: ",".join(self.grows),
            BRANCH: self.branch,
        }
        if self.upsert:
            properties[UPSERT] = json.dumps(self.upsert)
        if self.dead_letter:
            properties[DEAD_LETTER] = self.dead_letter
        if self.more:
            properties[MORE] = ",".join(map(str, self.more))
        for version, columns in enumerate(self.versions):
            properties |= columns_property(version, columns)
        properties[MANIFEST_BYTES] = str(16_384 + 2_048 * len(iceberg_schema(self.columns.schema()).field_ids))
        return {**WRITTEN, **(NO_VALUE_BOUNDS if self.columns.prefix is None else {}), **properties}

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], table: str) -> TableFacts:
        """Return the facts. Raises InvalidRequest if tierstate did not create the table, and CorruptData if properties
        are incomplete or invalid.
        """
        if TOPIC not in properties:
            raise InvalidRequest("the table was not created by tierstate", table=table)
        try:
            return cls(
                properties[TOPIC],
                TopicId(properties[TOPIC_ID]),
                Isolation(properties[ISOLATION]),
                tuple(_versions(properties)),
                properties[KEEP] == "true",
                tuple(filter(None, properties[GROWS].split(","))),
                properties.get(BRANCH, MAIN_BRANCH),
                tuple(json.loads(properties.get(UPSERT, "[]"))),
                tuple(map(TopicId, filter(None, properties.get(MORE, "").split(",")))),
                properties.get(DEAD_LETTER, ""),
            )
        except (KeyError, TypeError, ValueError, InvalidRequest) as error:
            raise CorruptData("a table does not say what it follows", table=table, reason=repr(error)) from error


def columns_property(version: int, columns: Columns) -> dict[str, str]:
    return {f"{COLUMNS}.{version}": json.dumps(columns.as_json(), separators=(",", ":"))}


def own_bounds_alone(columns: Columns) -> dict[str, str]:
    """Return Iceberg's table properties that keep bounds only for the columns that every table needs."""
    names = {columns.source, *map(columns.column, NEEDED)}
    full = {f"write.metadata.metrics.column.{name}": "full" for name in names}
    return {"write.metadata.metrics.default": "counts", **full}


def _versions(properties: Mapping[str, str]) -> Iterator[Columns]:
    """Yield the versions from 0 on. Raises KeyError if there is none, and ValueError or similar if one is invalid."""
    for version in count():
        if version and f"{COLUMNS}.{version}" not in properties:
            return
        yield Columns.of_json(json.loads(properties[f"{COLUMNS}.{version}"]))


def require_columns(columns: Columns) -> None:
    """Raise InvalidRequest if a column that every table needs is missing."""
    missing = [name for name in NEEDED if name not in columns.names]
    if missing:
        raise InvalidRequest("a table needs this column", column=missing[0], columns=",".join(columns.names))


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return the schema of a new table. Raises InvalidRequest for types that Iceberg cannot hold."""
    conversion = _Conversion()
    try:
        return assign_fresh_schema_ids(visit_pyarrow(columns, conversion))
    except UnsupportedPyArrowTypeException as error:
        raise InvalidRequest(
            "an Iceberg table cannot hold this type", column=conversion.column, type=str(error.field.type)
        ) from error
    except ValueError as error:  # Iceberg joins the names of nested fields by dots
        raise InvalidRequest("two fields of a table would have one name", reason=str(error)) from error


class _Conversion(_ConvertToIcebergWithoutIDs):
    """pyiceberg's conversion, but a record without fields raises InvalidRequest: Parquet cannot store it."""

    @property
    def column(self) -> str:
        """Return the name of the field that is being converted, with dots."""
        return ".".join(self._field_names)

    def struct(self, struct: pa.StructType, field_results: list[Any]) -> StructType:
        if not field_results:
            raise InvalidRequest("a record without fields cannot be a column", column=self.column)
        return super().struct(struct, field_results)
