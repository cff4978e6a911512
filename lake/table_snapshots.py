"""The snapshots that a table keeps, and those that other engines made.

Each commit writes the list of all snapshots again, so their number decides its cost. A follower keeps the newest ones,
and older ones that are spread evenly over their age. A query that began on a snapshot can end after it expired: the
expiry removes no data file. `table_upkeep.sweep` removes files older than a day that no kept snapshot names, and the
kept snapshots of the last day name each file that was in use on that day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate

from ..state.errors import InvalidRequest
from ..state.offsets import TimestampMs
from .table import LakeTable
from .table_errors import foreign
from .table_place import OFFSETS, summary_of

EXPIRED_AT_ONCE = 100
"""A follower expires snapshots once there are this many, because expiring costs an additional commit."""


@dataclass(frozen=True, slots=True)
class Retention:
    """``count``: the newest snapshots that stay. As many older ones stay, spread evenly over ``age_ms``."""

    count: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class ForeignSnapshot:
    """A snapshot that another engine committed. ``engine``: its name and version, if it left them."""

    snapshot_id: int
    timestamp_ms: int
    operation: str
    engine: str
    added_rows: int
    deleted_rows: int


def foreign_snapshots(table: LakeTable) -> list[ForeignSnapshot]:
    """Return what other engines committed to the table, with the newest first, as far as its snapshots reach back."""
    rows = []
    for snapshot in ancestors_of(table.head, table.iceberg.metadata):
        summary = summary_of(snapshot)
        if OFFSETS not in summary and snapshot.summary is not None:
            engine = " ".join(filter(None, (summary.get("engine-name"), summary.get("engine-version"))))
            counts = [int(summary.get(f"{what}-records", 0)) for what in ("added", "deleted")]
            operation = snapshot.summary.operation.value
            rows.append(ForeignSnapshot(snapshot.snapshot_id, snapshot.timestamp_ms, operation, engine, *counts))
    return rows


def old_snapshots(table: LakeTable, keep: int, older_than: TimestampMs) -> list[int]:
    """Return the ids of the snapshots older than ``older_than`` that are not among the newest ``keep``."""
    return [each.snapshot_id for each in _all_but(table, keep) if each.timestamp_ms < older_than]


def surplus(table: LakeTable, retention: Retention, now: TimestampMs) -> list[int]:
    """Return the ids of the snapshots that a follower does not keep."""
    width = max(1, retention.age_ms // retention.count)
    ids, taken = [], set[int]()
    for snapshot in _all_but(table, retention.count):
        slot = snapshot.timestamp_ms // width
        if snapshot.timestamp_ms < now - retention.age_ms or slot in taken:
            ids.append(snapshot.snapshot_id)
        taken.add(slot)
    return ids


def _all_but(table: LakeTable, keep: int) -> list[Snapshot]:
    """Return the snapshots that are not among the newest ``keep``, with the newest first.

    Snapshots that a branch or a tag names are left out. So are those from the current one back to the newest with the
    table's place: the place is found by going from child to parent.
    """
    if keep < 1:
        raise InvalidRequest("a table keeps one snapshot at least", keep=keep)
    needed = {each.snapshot_id for each in table.iceberg.refs().values()}
    for snapshot in ancestors_of(table.head, table.iceberg.metadata):
        needed.add(snapshot.snapshot_id)
        if OFFSETS in summary_of(snapshot):
            break
    by_age = sorted(table.iceberg.snapshots(), key=lambda each: each.sequence_number or 0, reverse=True)
    return [each for each in by_age[keep:] if each.snapshot_id not in needed]


def expire(table: LakeTable, snapshots: Sequence[int]) -> bool:
    """Expire snapshots. Returns False if another writer committed first; then nothing changed.

    pyiceberg's `ExpireSnapshots.by_ids` copies the metadata for each id: 100 ids take seconds.
    """
    if not snapshots:
        return True
    same = AssertTableUUID(uuid=table.iceberg.metadata.table_uuid)
    with foreign(table=table.name):
        try:
            update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshots)})
            table.iceberg.catalog.commit_table(table.iceberg, (same,), (update,))
        except (CommitFailedException, ValueError):  # ValueError: another writer expired one of them
            table.refresh()
            return False
    table.refresh()
    return True


def expire_some(table: LakeTable, retention: Retention, now: TimestampMs) -> bool:
    """Expire surplus snapshots once there are `EXPIRED_AT_ONCE` of them. A follower calls this after its commits.

    Returns False if there was nothing to expire, or another writer committed first.
    """
    ids = surplus(table, retention, now)
    return len(ids) >= EXPIRED_AT_ONCE and expire(table, ids)
