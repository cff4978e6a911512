"""The reason why a follower cannot continue a table, as a property of the table.

`tierstate table list` and the gateway read no records, so they do not meet what stops a follower. The follower commits
its reason, without a snapshot, and removes it once the table continues.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from ..state.offsets import TimestampMs
from .table import WRITABLE_FORMAT, LakeTable
from .table_catalog import LakeCatalog

NOTE = "tierstate.stopped"
LASTING_S, AGAIN_S = 30.0, 600.0
"""A follower notes a failure that lasts so long, and no other one for ten minutes: each note is a commit."""
LONGEST = 2_000
"""The most characters of a reason. Each commit repeats the properties."""


class Note(NamedTuple):
    at: TimestampMs
    reason: str


def note_of(table: LakeTable) -> Note | None:
    """Return the note that a follower left in the table. Returns None if there is none, or another tool changed it."""
    try:
        note = json.loads(table.iceberg.properties[NOTE])
        return Note(TimestampMs(int(note["at"])), str(note["reason"]))
    except (KeyError, TypeError, ValueError):
        return None


def report(catalog: LakeCatalog, name: str, reason: str | None, now: TimestampMs) -> None:
    """Make this the reason that the table shows; None removes it."""
    with suppress(Exception):  # whatever it is, the table continues without the note
        table = catalog.table(name)
        note, reason = note_of(table), reason and reason[:LONGEST]
        metadata = table.iceberg.metadata
        if (note and note.reason) == reason or metadata.format_version > WRITABLE_FORMAT:
            return
        update: TableUpdate = RemovePropertiesUpdate(removals=[NOTE])
        if reason:
            update = SetPropertiesUpdate(updates={NOTE: json.dumps({"at": now, "reason": reason})})
        same = AssertTableUUID(uuid=metadata.table_uuid)
        table.iceberg.catalog.commit_table(table.iceberg, (same,), (update,))
