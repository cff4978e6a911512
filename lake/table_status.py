"""How far tables are: what `tierstate table list` and the gateway show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..state.errors import TierstateError, Unavailable
from ..state.offsets import TimestampMs, moment
from .columns import Columns
from .log import TopicLog
from .table import LakeTable
from .table_catalog import LakeCatalog
from .table_facts import TableFacts
from .table_follow import behind_since, look_at, require_tiered
from .table_note import note_of
from .table_place import ROWS, TablePlace, summary_of
from .table_shape import shape_text

FILES = "total-data-files"
LONG_S = 600.0
READS = "its follower reads the records: its /readyz, or `tierstate table follow {} --once`, names what stops it"
"""The reason of a table that is behind for `LONG_S`. This comparison reads no record, and so meets no damaged one."""


@dataclass
class TableStatus:
    """A table, and a comparison with its topic. A value is None if it could not be determined.

    ``keys``, ``values``: format, None for bytes. ``partition_by``, ``sort_by``, ``upsert``, ``envelope``, ``route_by``,
    ``subject``, ``dead_letter``, ``metadata_prefix``, ``branch``: as the flags of `table create`; None if not set.
    ``version``: version of the columns. ``lag``: offsets that the table lacks. ``lag_seconds``: since the oldest of
    them was copied. ``skipped``: ranges in neither tier whose loss a person accepted. ``state``: current, behind,
    stopped (see ``reason``), or unknown (brokers or store do not answer).
    """

    table: str
    topic: str | None = None
    topic_id: str | None = None
    isolation: str | None = None
    keep: bool | None = None
    keys: str | None = None
    values: str | None = None
    version: int | None = None
    partition_by: str | None = None
    sort_by: str | None = None
    upsert: str | None = None
    envelope: str | None = None
    route_by: str | None = None
    subject: str | None = None
    dead_letter: str | None = None
    metadata_prefix: str | None = None
    branch: str | None = None
    ends: list[dict[str, Any]] | None = None
    rows: int | None = None
    files: int | None = None
    last_commit: str | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    skipped: list[dict[str, Any]] | None = None
    state: str = "stopped"
    reason: str | None = None

    @classmethod
    def of_table(cls, table: LakeTable) -> TableStatus:
        """Return the part that needs no log."""
        status = cls(table.name)
        status.describe(table)
        return status

    def describe(self, table: LakeTable) -> None:
        facts, snapshot = table.facts, table.head
        self.topic, self.topic_id = ", ".join(facts.topics), str(facts.topic_id)
        self.isolation, self.keep, self.version = facts.isolation.value, facts.keep, facts.version
        forms = (facts.columns.key, facts.columns.value)
        self.keys, self.values = (form.format if form else None for form in forms)
        self._describe_shape(table)
        self.rows = self.files = 0
        if snapshot is not None:
            self.rows, self.files = (int(summary_of(snapshot).get(name, 0)) for name in (ROWS, FILES))
            self.last_commit = moment(snapshot.timestamp_ms)
        self.ends = ends_of(table.place(), facts.columns)

    def _describe_shape(self, table: LakeTable) -> None:
        facts, iceberg = table.facts, table.iceberg
        shape = shape_text(iceberg.spec(), iceberg.sort_order(), iceberg.schema())
        self.partition_by, self.sort_by = shape["partition_by"], shape["sort_by"]
        self.upsert, self.dead_letter = ", ".join(facts.upsert) or None, facts.dead_letter or None
        self.envelope, self.metadata_prefix, self.branch = facts.columns.envelope, facts.columns.prefix, facts.branch
        if (only := facts.columns.only) is not None:
            self.subject, self.route_by = only.subject, only.field and f"{only.field}={only.value}"

    def compare(self, table: LakeTable, log: TopicLog, now: TimestampMs) -> None:
        """Compare the table with its log. Raises the error of a partition that cannot be read."""
        require_tiered(table, log)
        look = look_at(table, log)
        reaches = look.place.partitions.items()
        gaps = [gap for number, reach in reaches for gap in log.skipped(number, reach.start, reach.end)]
        since = behind_since(look, log)
        self.lag, self.lag_seconds = look.lag, None if since is None else max(0, now - since) / 1000
        if not look.news:
            self.lag_seconds = 0.0
        elif (self.lag_seconds or 0.0) >= LONG_S:
            self.reason = READS.format(table.name)
        self.skipped = [gap._asdict() | table.facts.columns.place_of(gap.partition) for gap in gaps]
        self.state = "behind" if look.lag or look.lost else "current"
        if self.state == "behind" and (note := note_of(table)) is not None:
            self.state, self.reason = "stopped", f"{note.reason} (reported by a follower at {moment(note.at)})"
        for failure in look.waiting.values():
            raise failure


def statuses(
    catalog: LakeCatalog, log: Callable[[TableFacts], TopicLog], now: Callable[[], TimestampMs]
) -> Iterator[TableStatus]:
    """Yield the status of each table that follows a topic."""
    for name in catalog.ours():
        status = TableStatus(name)
        try:
            table = catalog.table(name)
            status.describe(table)
            status.compare(table, log(table.facts), now())
        except Unavailable as error:
            status.state, status.reason = "unknown", str(error)
        except TierstateError as error:
            status.reason = str(error)
        yield status


def ends_of(place: TablePlace, columns: Columns) -> list[dict[str, Any]]:
    """Return each partition with the end offset (exclusive) of its rows, as JSON objects."""
    return [columns.place_of(number) | {"end_offset": reach.end} for number, reach in sorted(place.partitions.items())]
