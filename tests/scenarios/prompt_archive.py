"""An archive that holds every fact before an agent asks how far it goes."""

from __future__ import annotations

from collections import Counter

from tierstate.app.looking.archived_deletes import ArchivedDeletes
from tierstate.broker.tier_topic import TierTopic
from tierstate.follower.archive import archive
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import Clock
from tierstate.runtime.listener import Event
from tierstate.runtime.operation import run
from tierstate.state.offsets import Position, TimestampMs
from tierstate.storage.object_store import ObjectStore

SOON_MS = 60_000


class PromptArchive:
    """``deletes`` answers a sweep's questions about segments whose facts are erased."""

    def __init__(self, topic: TierTopic, store: ObjectStore, identity: ViewIdentity, clock: Clock) -> None:
        self.topic, self.store, self.identity, self.clock = topic, store, identity, clock
        self.deletes = ArchivedDeletes(store, identity, clock, self._failed)
        self._reached: Counter[int] = Counter()

    def archived_to(self, number: int) -> Position:
        """Return how far a tier-state partition is archived, after archiving every fact so far."""
        position = Position(self._reached[number])
        if self.topic.end(number) > position:
            soon = TimestampMs(self.clock.now_ms() + SOON_MS)
            position = run(archive(self.topic, Shelf(self.store, self.identity, number), soon, 0, position))
            self._reached[number] = position
        return position

    @staticmethod
    def _failed(event: Event) -> None:
        raise AssertionError(f"the archive is not to be asked: {event}")
