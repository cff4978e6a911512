"""Finds deletions of segments that no live fact names in the archive, for a sweep. Connects `leader` and `follower`."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from ...follower.rocksdb_view import ViewIdentity
from ...follower.time_travel import archived_entries
from ...follower.view_identity import Shelf
from ...leader.recover_scan import deleted_in
from ...runtime.clock import Clock
from ...runtime.listener import ChoreFailed, Listener
from ...state.errors import TierstateError
from ...state.ids import RemoteSegmentId, TopicIdPartition
from ...state.keys import tier_partition_of
from ...storage.object_store import ObjectStore

Asked = tuple[TopicIdPartition, RemoteSegmentId]

ASK_AGAIN_S = 7 * 86_400.0
"""Seconds that the answer "not deleted" is kept, because each question reads the complete archive of a tier-state
partition. "Deleted" is kept for ever."""


class ArchivedDeletes:
    """Returns which segments were deleted, according to an archive, for `rules/sweep.py`. Keeps answers; thread-safe.

    If the archive is damaged or cannot be read, no segment counts as deleted. This is reported and tried again later.
    """

    def __init__(self, store: ObjectStore, identity: ViewIdentity, clock: Clock, listener: Listener) -> None:
        self._store, self._identity, self._clock, self._listener = store, identity, clock, listener
        self._deleted: dict[Asked, str] = {}
        self._unknown: dict[Asked, float] = {}
        self._lock = threading.Lock()

    def __call__(
        self, partition: TopicIdPartition, segment_ids: Collection[RemoteSegmentId]
    ) -> Mapping[RemoteSegmentId, str]:
        with self._lock:  # one reading at a time
            questions = [(partition, each) for each in segment_ids]
            now = self._clock.monotonic()
            new = [
                each
                for each in questions
                if each not in self._deleted and now - self._unknown.get(each, -ASK_AGAIN_S) >= ASK_AGAIN_S
            ]
            if new:
                self._ask(partition, new, now)
            return {question[1]: self._deleted[question] for question in questions if question in self._deleted}

    def _ask(self, partition: TopicIdPartition, questions: list[Asked], now: float) -> None:
        number = tier_partition_of(partition, self._identity.partitions)
        try:
            deletes = deleted_in(archived_entries(Shelf(self._store, self._identity, number)), questions)
        except TierstateError as error:  # no usable archive: in doubt nothing is marked for deletion
            self._listener(ChoreFailed("archived deletes", number, str(error)))
            return
        self._deleted.update(deletes)
        self._unknown.update({each: now for each in questions if each not in deletes})
