"""Committed offsets of the groups of a proxy that reads the bucket alone: one SQLite file.

A group belongs to a user: users do not see or move each other's offsets. Topics are named by their ids, so that a
re-created topic, or another bucket, has offsets of its own. An offset is durable once its commit is answered.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..state.errors import DiskFull, InvalidSettings
from ..state.ids import TopicIdPartition

_TABLE = """
CREATE TABLE IF NOT EXISTS offsets (
    user TEXT, name TEXT, topic_id TEXT, partition INTEGER, "offset" INTEGER, epoch INTEGER, metadata TEXT,
    PRIMARY KEY (user, name, topic_id, partition)
) WITHOUT ROWID
"""
GroupId = tuple[str, str]
"""The user and the name of a group."""


class Committed(NamedTuple):
    """A committed offset, the leader epoch of the record before it (-1: unknown), and the client's text."""

    offset: int
    epoch: int
    metadata: str


class GroupOffsets:
    """The file of the groups' committed offsets. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSettings if the file cannot be used."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
            with self._database:
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute(_TABLE)
        except sqlite3.Error as error:
            raise InvalidSettings([f"state_dir: {path} cannot hold the groups' offsets, {error}"]) from error

    def close(self) -> None:
        self._database.close()

    def commit(self, group: GroupId, offsets: Iterable[tuple[TopicIdPartition, Committed]]) -> None:
        """Store all ``offsets`` in one transaction. Raises DiskFull if the file cannot be written."""
        rows = [(*group, str(place.topic_id), place.partition, *committed) for place, committed in offsets]
        try:
            with self._lock, self._database:
                self._database.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise DiskFull("the groups' offsets cannot be written", group_id=group[1], reason=error) from error

    def groups(self, user: str) -> set[str]:
        """Return the names of the user's groups that have offsets."""
        with self._lock:
            rows = self._database.execute("SELECT DISTINCT name FROM offsets WHERE user = ?", (user,)).fetchall()
        return {name for (name,) in rows}

    def of(self, group: GroupId) -> dict[tuple[str, int], Committed]:
        """Return the offsets of a group by topic id and partition."""
        with self._lock:
            rows = self._database.execute(
                'SELECT topic_id, partition, "offset", epoch, metadata FROM offsets WHERE user = ? AND name = ?', group
            ).fetchall()
        return {(topic_id, partition): Committed(*committed) for topic_id, partition, *committed in rows}
