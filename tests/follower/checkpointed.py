"""A topic, and checkpoints of the view of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from tests.follower.archived import run
from tests.follower.said import Topic, elected, identity, log_start
from tests.twins.manual_clock import ManualClock
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint
from tierstate.follower.digests import live_set_digest
from tierstate.follower.live_set_object import LiveSetHeader
from tierstate.follower.object_names import PositionName, TierPlace
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.state.errors import (
    TierstateError,
)
from tierstate.state.keys import key_of
from tierstate.state.offsets import Position
from tierstate.state.view import ViewStore
from tierstate.storage.memory import MemoryStore

NewStore = Callable[[], ViewStore]
KEEP = 3


@dataclass
class World:
    """A topic with the facts of partition 0 in one tier-state partition, and checkpoints of that one."""

    new_store: NewStore
    said: Topic = field(default_factory=Topic)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.objects = MemoryStore(self.clock)
        self.leader = elected(0, 1, 1)
        self.number = self.said.number(key_of(self.leader))
        self.at = self.said.say(self.leader)
        self.refusals: list[tuple[int, TierstateError]] = []

    @property
    def names(self) -> list[PositionName]:
        return TierPlace(self.said.topic.topic_id, self.number).checkpoints(self.objects)

    def speak(self, *offsets: int) -> World:
        for offset in offsets:
            self.said.say(log_start(0, offset, self.leader, self.at, counter=offset))
        return self

    def act(self, keep: int = KEEP) -> Generator[str, None, Position]:
        shelf = Shelf(self.objects, identity(), self.number)
        return checkpoint(self.said.topic, shelf, self.clock, keep, self.new_store, self._refused)

    def checkpoints(self, *offsets: int) -> World:
        """Write one checkpoint after each of these facts."""
        for offset in offsets:
            run(self.speak(offset).act())
        return self

    def _refused(self, key: str, error: TierstateError) -> None:
        self.refusals.append((int(key.rpartition("/")[2] or -1), error))

    def start(
        self, store: ViewStore, of: ViewIdentity | None = None, number: int | None = None, end: int | None = None
    ) -> LiveSetHeader | None:
        """``refusals``: positions of the checkpoints that were passed over, and why."""
        self.refusals.clear()
        number = self.number if number is None else number
        at = self.said.topic.end(number) if end is None else Position(end)
        return CheckpointSeed(self.said.topic, self.objects, of or identity(), self.clock, self._refused)(
            store, number, at
        )

    def follow(self, store: ViewStore) -> tuple[str, int]:
        """Follow up to the end. Return the digest of the live set, and the position."""
        catch_up(self.said.topic, store, {self.number: self.said.topic.end(self.number)})
        return self.digest(store), store.position(self.number)

    def digest(self, store: ViewStore) -> str:
        return live_set_digest(store.entries(self.number)).hexdigest()
