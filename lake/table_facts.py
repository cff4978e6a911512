"""What a table is, as its properties say it: which topic it follows and how. Written once, when it is created; where
its schema evolves one is added, `tierstate.columns.1` and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.routing import Isolation
from .columns import Columns

TOPIC, TOPIC_ID = "tierstate.topic", "tierstate.topic-id"
ISOLATION, COLUMNS, KEEP, GROWS = "tierstate.isolation", "tierstate.columns", "tierstate.keep", "tierstate.grows"

RETRIES = "commit.retry.num-retries"
WRITTEN = {
    RETRIES: "0",
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.column.value": "none",
}
"""Of every table of ours. Retries*: pyiceberg repeats an append by itself when another writer was first, on top of what
that one wrote; of two followers both would land then. 0 makes the second fail, and it reads its place again.
"""
NEEDED = ("partition", "offset", "timestamp")
"""Without these no row can be told from another, or be taken out."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """``versions`` of the columns, the newest last: each row was written by one. ``keep``: rows stay when the log
    deletes its own, the table is an archive. ``grows``: of `key` and `value`, whose schemas are the registry's.
    """

    topic: str
    topic_id: TopicId
    isolation: Isolation
    versions: tuple[Columns, ...]
    keep: bool
    grows: tuple[str, ...] = ()

    @property
    def columns(self) -> Columns:
        """That new rows are written with."""
        return self.versions[-1]

    @property
    def version(self) -> int:
        """Of these."""
        return len(self.versions) - 1

    def as_properties(self) -> dict[str, str]:
        said = {
            TOPIC: self.topic,
            TOPIC_ID: str(self.topic_id),
            ISOLATION: self.isolation.value,
            KEEP: "true" if self.keep else "false",
            GROWS: ",".join(self.grows),
        }
        for version, columns in enumerate(self.versions):
            said |= columns_property(version, columns)
        return {**WRITTEN, **said}

    @classmethod
    def of_properties(cls, said: Mapping[str, str], table: str) -> TableFacts | None:
        """None: no table of ours. Raises CorruptData for one that says half of it, InvalidRequest for one that lets
        pyiceberg repeat commits.
        """
        if TOPIC not in said:
            return None
        try:
            facts = cls(
                said[TOPIC],
                TopicId(said[TOPIC_ID]),
                Isolation(said[ISOLATION]),
                tuple(_versions(said)),
                said[KEEP] == "true",
                tuple(filter(None, said[GROWS].split(","))),
            )
        except (KeyError, TypeError, ValueError, InvalidRequest) as error:
            raise CorruptData("a table does not say what it follows", table=table, reason=repr(error)) from error
        if said.get(RETRIES) != "0":
            raise InvalidRequest(
                "the table lets a commit be repeated on top of another writer's, which would show records twice; "
                f"set its property {RETRIES} to 0",
                table=table,
                found=said.get(RETRIES),
            )
        return facts


def columns_property(version: int, columns: Columns) -> dict[str, str]:
    return {f"{COLUMNS}.{version}": json.dumps(columns.as_json(), separators=(",", ":"))}


def _versions(said: Mapping[str, str]) -> Iterator[Columns]:
    """From 0 on. Raises KeyError where there is none, ValueError and such for one that cannot be read."""
    for version in count():
        if version and f"{COLUMNS}.{version}" not in said:
            return
        yield Columns.of_json(json.loads(said[f"{COLUMNS}.{version}"]))


def require_columns(columns: Columns) -> None:
    """Raises InvalidRequest where one is missing that every table needs."""
    missing = [name for name in NEEDED if name not in columns.names]
    if missing:
        raise InvalidRequest("a table needs this column", column=missing[0], columns=",".join(columns.names))
