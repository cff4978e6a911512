"""What a table is, as its properties say it: which topic it follows and how. Written once, when it is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.routing import Isolation

TOPIC, TOPIC_ID = "tierstate.topic", "tierstate.topic-id"
ISOLATION, COLUMNS, KEEP = "tierstate.isolation", "tierstate.columns", "tierstate.keep"

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
    """``keep``: rows stay when the log deletes its own, the table is an archive."""

    topic: str
    topic_id: TopicId
    isolation: Isolation
    columns: tuple[str, ...]
    keep: bool

    def as_properties(self) -> dict[str, str]:
        said = {
            TOPIC: self.topic,
            TOPIC_ID: str(self.topic_id),
            ISOLATION: self.isolation.value,
            COLUMNS: ",".join(self.columns),
            KEEP: "true" if self.keep else "false",
        }
        return {**WRITTEN, **said}

    @classmethod
    def of_properties(cls, said: Mapping[str, str], table: str) -> TableFacts | None:
        """None: no table of ours. Raises CorruptData for one that says half of it, InvalidRequest for one that lets
        pyiceberg repeat commits.
        """
        if TOPIC not in said:
            return None
        try:
            columns = tuple(said[COLUMNS].split(","))
            facts = cls(said[TOPIC], TopicId(said[TOPIC_ID]), Isolation(said[ISOLATION]), columns, said[KEEP] == "true")
        except (KeyError, ValueError, InvalidRequest) as error:
            raise CorruptData("a table does not say what it follows", table=table, reason=repr(error)) from error
        if said.get(RETRIES) != "0":
            raise InvalidRequest(
                "the table lets a commit be repeated on top of another writer's, which would show records twice; "
                f"set its property {RETRIES} to 0",
                table=table,
                found=said.get(RETRIES),
            )
        return facts


def require_columns(columns: tuple[str, ...]) -> None:
    """Raises InvalidRequest where one is missing that every table needs."""
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise InvalidRequest("a table needs this column", column=missing[0], columns=",".join(columns))
