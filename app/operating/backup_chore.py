"""An agent's chore: it keeps the newest backup of the cluster current.

The agent that cares for the first tier-state partition does it, and so one agent at a time. While that partition
changes hands two agents may do it: each puts a whole backup under a key of its own, so none damages the other's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...broker.raw import RawClient
from ...runtime.clock import Clock
from ...runtime.operation import Operation
from ...runtime.settings import Settings
from ...state.errors import TierstateError
from ...state.offsets import TimestampMs, moment
from ...storage.object_store import ObjectStore
from ...values.schema_registry import SchemaRegistry, registry_access
from .cluster_backup import (
    DEFINITIONS,
    Backup,
    backup_key,
    backup_times,
    newest_backup,
    put_backup,
    read_cluster,
    read_definitions,
)

LOOK_S = 60.0
"""Seconds between two looks at what people define: topics, access lists, quotas."""
RESPONSIBLE = 0
"""The tier-state partition whose agent backs up."""


class BackupChore:
    """Used by the thread of the chores; any thread reads ``problems``. ``now`` returns the time of a backup."""

    def __init__(
        self, raw: RawClient, store: ObjectStore, settings: Settings, clock: Clock, now: Callable[[], TimestampMs]
    ) -> None:
        self._raw, self._store, self._settings, self._clock, self._now = raw, store, settings, clock, now
        access = registry_access(settings.registry)
        self._registry = None if access is None else SchemaRegistry(access, clock, retries=3)
        self._newest: Backup | None = None
        self._due = 0.0
        self.problems: tuple[str, ...] | None = None
        """What the newest backup lacks, and why; None while another agent is responsible or nothing was tried."""

    @property
    def every_s(self) -> float:
        return min(LOOK_S, self._settings.backup.every)

    def operation(self, number: int, stop: threading.Event) -> Operation[None]:
        """Put a backup if the last one is `backup.every` old, or if what people define has changed.

        Does nothing for other tier-state partitions than `RESPONSIBLE`. Raises the errors of the cluster and the store.
        """
        if number != RESPONSIBLE:
            return
        try:
            definitions = read_definitions(self._raw)
            if self._clock.monotonic() < self._due and not self._differ(definitions):
                return
            cluster_id = definitions["cluster_id"]
            self._newest = newest_backup(self._store, cluster_id)
            content = read_cluster(self._raw, self._settings.tier_state.topic, self._registry, self._newest)
            yield "put a backup"
            if put_backup(self._store, content, self._now(), self._newest) is not None:
                self._newest = newest_backup(self._store, cluster_id)
            self._due = self._clock.monotonic() + self._settings.backup.every
            self.problems = tuple(content["problems"])
            if old := self._old(backup_times(self._store, cluster_id)):
                yield "delete old backups"
                self._store.delete_many(backup_key(cluster_id, each) for each in old)
        except TierstateError as error:
            last = "none was seen" if self._newest is None else f"the last one is of {moment(self._newest.at)}"
            self.problems = (f"no backup is made, {last}: {error}",)
            raise

    def _differ(self, definitions: dict[str, object]) -> bool:
        newest = self._newest
        return newest is None or any(definitions[each] != newest.document.get(each) for each in DEFINITIONS)

    def _old(self, times: list[TimestampMs]) -> list[TimestampMs]:
        """Return the backups that no moment within `archive.keep` needs: the newest of those before it stays."""
        horizon = self._now() - round(self._settings.archive.keep * 1000)
        return [each for each in times if each <= horizon][:-1]

    def leave(self) -> None:
        """Forget the problems, because another agent is responsible now."""
        self.problems = None
