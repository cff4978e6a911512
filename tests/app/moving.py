"""Two stores in memory, an agent that moves from one to the other, and a reader that follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import pytest

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.operating.migration import Cleanup, Migration, standing_move, wait_for_writers
from tierstate.follower.followed_store import FollowedStore
from tierstate.follower.heartbeat import Claimant, sign
from tierstate.follower.movable_claim import MovableClaim
from tierstate.follower.move import ARRIVED, Move, read_move
from tierstate.follower.object_names import LOCK, MOVE, ROOT
from tierstate.state.errors import (
    ObjectNotFound,
    StorageUnavailable,
    Unavailable,
)
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.wrapped_stores import claimed

PERIOD = 20.0


class NamedStore(MemoryStore):
    """A store in memory with a URL of its own."""

    def __init__(self, url: str, clock: ManualClock, faults: Callable[[str, str, int], None]) -> None:
        super().__init__(clock, faults)
        self.url = url

    @property
    def description(self) -> str:
        return self.url

    def objects(self) -> dict[str, bytes]:
        keys = [each.key for each in self.list()]
        return {key: self.get(key) for key in keys if key != LOCK and not key.startswith(MOVE)}


@dataclass
class World:
    """Two stores, an agent with its claim, a reader that was opened before the move, and the segments of the facts."""

    faults: Callable[[str, str, int], None] = lambda operation, key, writes: None
    clock: ManualClock = field(default_factory=ManualClock)
    live: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.quiet_faults = True
        self.numbers, self.processes = count(), count(1)
        self.topic = MemoryTierTopic(1, clock=self.clock)
        self.source, self.target = (NamedStore(url, self.clock, self._fault) for url in ("s3://old", "s3://new"))
        self.source.put_if_absent(f"{ROOT}AAAAAAAAAAAAAAAAAAAAAg/0/checkpoint/{7:020d}", b"checkpoint")
        self.source.put_if_absent("of somebody else", b"1")
        self.reader = self.followed()
        self.restart()
        for _ in range(3):
            self.act()
        self.quiet_faults = False

    def _fault(self, operation: str, key: str, writes: int) -> None:
        if not self.quiet_faults:
            self.faults(operation, key, writes)

    def followed(self) -> FollowedStore:
        return FollowedStore(self.source, lambda move: self.target, self.clock)

    def restart(self) -> None:
        """Start an agent's process, as `open_agent` does."""
        self.place = self.followed()
        self.place.stay()
        store = cast(ObjectStore, self.place)
        who = Claimant("cluster", 1, "host1", "host1:/data", PERIOD, 0.0)
        self.claim = MovableClaim(self.topic, store, who, self.clock, CountingIds(next(self.processes)))
        self.store = claimed(store, self.claim.require, ROOT)
        self.claim.beat()

    def act(self) -> None:
        """Let the agent send a heartbeat, copy a segment and delete the oldest one, as far as its claim allows."""
        was, self.quiet_faults = self.quiet_faults, True
        self.claim.beat()
        if self.claim.move is not None and self.place.has_moved():
            self.claim.leave()
            self.restart()
        key, content = f"t/{next(self.numbers):020d}-S.log", b"%d" % next(self.numbers)
        try:
            self.store.put_if_absent(key, content)
            self.claim.require(harms=False)
            self.live[key] = content  # copy-finished
            if len(self.live) > 3:
                oldest = min(self.live)
                self.claim.require(harms=True)
                del self.live[oldest]  # delete-started
                self.store.delete(oldest)
        except Unavailable:
            pass
        self.quiet_faults = was

    def reads(self) -> None:
        """Read every live segment with a reader from before the move, and one that has just begun."""
        was, self.quiet_faults = self.quiet_faults, True
        for reader in (self.reader, self.followed()):
            for key, content in self.live.items():
                assert reader.get(key) == content
        self.quiet_faults = was

    def lives(self) -> None:
        self.act()
        self.reads()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.lives()

    def migrate(self, stop_at: int = -1) -> int:
        """Run `migrate`, dead before step ``stop_at``. Return the number of its steps."""
        move = standing_move(self.source, self.target, self.new_move)
        clock = cast(ManualClock, WaitingClock(self))
        quiet = lambda: wait_for_writers(self.source, "cluster", PERIOD, clock, lambda names: None)  # noqa: E731
        operation = Migration(self.source, self.target, lambda: None, quiet).steps(move)
        number = 0
        for number, _ in enumerate(operation):
            if number == stop_at:
                operation.close()
                return number
            self.lives()
        return number + 1

    def new_move(self) -> Move:
        record = sign(self.topic, "A" * 22)
        return Move(
            "A" * 22,
            "s3://old",
            "s3://new",
            "",
            "",
            self.topic.topic_id,
            record.position,
            record.sha256,
            "",
            self.clock.now_ms(),
        )

    def has_arrived(self) -> None:
        """Check that the agent goes on at the target, and that both sides had the same objects when it did."""
        assert read_move(self.target, ARRIVED) is not None
        for _ in range(3):
            self.wait(PERIOD)
        newest = max(self.live)
        assert self.target.get(newest) == self.live[newest]
        with pytest.raises(ObjectNotFound):
            self.source.get(newest)
        assert self.live.keys() <= self.target.objects().keys()
        assert {key for key in self.target.objects() if key.startswith("t/")} == self.live.keys()

    def finish(self) -> None:
        cleanup = Cleanup(self.source, self.target, list(self.live_bases), lambda: None)
        for _ in cleanup.steps():
            self.lives()

    @property
    def live_bases(self) -> Iterator[str]:
        return (key.removesuffix(".log") for key in self.live)


@dataclass
class FailsAt:
    """A fault at one write of either store."""

    number: int
    writes: int = -1

    def __call__(self, operation: str, key: str, _: int) -> None:
        self.writes += operation in ("put", "complete", "delete")
        if operation in ("put", "complete", "delete") and self.writes == self.number:
            raise StorageUnavailable("it fails")


@dataclass
class WaitingClock:
    world: World

    def monotonic(self) -> float:
        return self.world.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.world.wait(seconds)
