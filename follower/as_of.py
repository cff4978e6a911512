"""The as-of of a view: the last time at which the view is known to have been at the end of the topic.

After ``delete.retention.ms``, tombstones that the view has not read may be deleted from the topic. The facts that they
erased would stay in the view for ever, so a view is rebuilt after half of that time. The as-of is the age of the
position, not of the process: it also grows while a running follower is disconnected or its machine sleeps. (A model or
a review found a loss without this rule.)
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
"""The minimum of the tier-state topic's ``min.compaction.lag.ms``: no younger record was ever compacted."""
LOOK_S = 60.0
"""Seconds between two queries of the ends by a running follower."""


@dataclass(frozen=True, slots=True)
class EndReached:
    """A captured end. ``asked_s`` (monotonic) and ``asked_ms``: when ``end`` was queried, for view ``generation``."""

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
        """Lower bound (ms) of the as-ofs of all tier-state partitions, so that few iterations check each of them."""

    def begin(self, store: ViewStore) -> None:
        """Start to keep the as-of of this view. Raises PositionLost if the view has records but no as-of."""
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
        """Return whether the as-of is young enough that every tombstone since then is still in the topic."""
        return self._clock.now_ms() - store.as_of(tier_partition) <= MAX_AGE_MS

    def reached(self, store: ViewStore) -> list[EndReached]:
        """Return the captured ends that the view has reached, and record their times as its as-of."""
        ends = [each for number, each in self._ends.items() if store.position(number) >= each.end]
        for each in ends:
            store.mark_as_of(each.tier_partition, each.asked_ms)
            self._oldest = min(self._oldest, each.asked_ms)  # the clock may have been set back
            del self._ends[each.tier_partition]
        return ends

    def keep_up(self, store: ViewStore, generation: int) -> None:
        """Capture the ends again every `LOOK_S` seconds. Raises BrokerUnavailable."""
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
