"""The as-of of a view*: the last time at which it is known to have been at the end of the topic.

Half of ``delete.retention.ms`` later, tombstones that the view has not read may be deleted from the topic, and the
facts that they erased would stay in the view for ever: it is rebuilt. The as-of is the age of the position, not of the
process: a follower that runs but is cut off, or sleeps with its machine, ages too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..state.errors import PositionLost
from ..state.offsets import Position, TimestampMs
from ..state.view import ViewStore

MAX_AGE_MS = 15 * 24 * 3600 * 1000
"""Half of the 30 days of ``delete.retention.ms`` that the tier-state topic must have at least."""
MIN_COMPACTION_LAG_MS = 24 * 3600 * 1000
"""The lag that the tier-state topic must have at least: no younger record was ever compacted."""
LOOK_S = 60.0
"""How often a running follower asks for the ends."""


@dataclass(frozen=True, slots=True)
class EndReached:
    """``asked_s``: the monotonic second at which ``end`` was the end; ``generation``: of the view that asked."""

    tier_partition: int
    end: Position
    asked_s: float
    asked_ms: TimestampMs
    generation: int


class AsOf:
    """Keeps the as-of of a view up to date, and checks that it is not too old."""

    def __init__(self, topic: TierTopic, clock: Clock, tier_partitions: Sequence[int]) -> None:
        self._topic, self._clock, self._numbers = topic, clock, tier_partitions
        self._ends: dict[int, EndReached] = {}
        self._looked: float | None = None
        self._oldest = 0
        """No as-of of the view is older (ms), so that not all are checked in every iteration of the tail."""

    def begin(self, store: ViewStore) -> None:
        """Start with a view that begins to follow. Raises PositionLost for one with facts of unknown age."""
        self._ends.clear()
        self._looked, self._oldest = None, 0
        for number in self._numbers:
            if store.as_of(number):
                continue
            if store.position(number):
                raise PositionLost("nobody knows when this view was last at the end", tier_partition=number)
            store.mark_as_of(number, self._clock.now_ms())  # an empty view is current when its replay begins

    def check(self, store: ViewStore) -> None:
        """Raise PositionLost when the view is too old to catch up."""
        if self._clock.now_ms() - self._oldest <= MAX_AGE_MS:
            return
        for number in self._numbers:
            if not self.in_time(store, number):
                raise PositionLost(
                    "the view was last at the end too long ago",
                    tier_partition=number,
                    as_of=store.as_of(number),
                    limit_ms=MAX_AGE_MS,
                )
        self._oldest = min((store.as_of(number) for number in self._numbers), default=0)

    def in_time(self, store: ViewStore, tier_partition: int) -> bool:
        """Return whether every tombstone since the view's as-of is still in the topic."""
        return self._clock.now_ms() - store.as_of(tier_partition) <= MAX_AGE_MS

    def reached(self, store: ViewStore) -> list[EndReached]:
        """Return which of the captured ends the view has reached, and note its new as-of."""
        ends = [each for number, each in self._ends.items() if store.position(number) >= each.end]
        for each in ends:
            store.mark_as_of(each.tier_partition, each.asked_ms)
            self._oldest = min(self._oldest, each.asked_ms)  # a clock that was set back
            del self._ends[each.tier_partition]
        return ends

    def keep_up(self, store: ViewStore, generation: int) -> None:
        """Ask for the ends again when it is time. Raises BrokerUnavailable."""
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= LOOK_S:
            self._looked = now
            at_ms = self._clock.now_ms()
            ends = self._topic.ends(self._numbers)
            for number in self._numbers:
                if number in self._ends:
                    continue
                end = ends[number] if number in ends else self._topic.end(number)
                if store.position(number) <= end:  # else the topic was truncated, and no end was reached
                    self._ends[number] = EndReached(number, end, now, at_ms, generation)
