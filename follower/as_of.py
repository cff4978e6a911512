"""Whether a view may go on: it must be young enough, and of the same history as the topic.

The *as-of* of a view is the last time at which the view is known to have been at the end of the topic.

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
from ..state.view import Anchor, ViewStore

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

    def begin(self, store: ViewStore) -> None:
        """Start to keep the as-of of this view. Raises PositionLost if the view has records but no as-of."""
        self._ends.clear()
        self._looked = None
        for number in self._numbers:
            if store.as_of(number):
                continue
            if store.position(number):
                raise PositionLost("nobody knows when this view was last at the end", tier_partition=number)
            store.mark_as_of(number, self._clock.now_ms())  # an empty view is current when its replay begins

    def check(self, store: ViewStore) -> None:
        """Raise PositionLost when the view is too old to catch up."""
        for number in self._numbers:
            if not self.in_time(store, number):
                raise PositionLost(
                    "the view was last at the end too long ago",
                    tier_partition=number,
                    as_of=store.as_of(number),
                    limit_ms=MAX_AGE_MS,
                )

    def in_time(self, store: ViewStore, tier_partition: int) -> bool:
        """Return whether the as-of is young enough that every tombstone since then is still in the topic."""
        return self._clock.now_ms() - store.as_of(tier_partition) <= MAX_AGE_MS

    def reached(self, store: ViewStore) -> list[EndReached]:
        """Return the captured ends that the view has reached, and record their times as its as-of."""
        ends = [each for number, each in self._ends.items() if store.position(number) >= each.end]
        for each in ends:
            store.mark_as_of(each.tier_partition, each.asked_ms)
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


def check_same(topic: TierTopic, tier_partition: int, anchor: Anchor | None, as_of: int, now_ms: TimestampMs) -> None:
    """Check that the topic still has the history of a view or a checkpoint that was last at the end at ``as_of`` (ms).

    A broker that is restored from a backup lacks the newest records. Later records get the positions and leader epochs
    of the lost ones. A view that continued with them would belong to neither history. So its last record is compared
    with the topic's. If compaction removed that record, the comparison proves nothing, unless ``as_of`` is younger than
    the compaction lag: a record that replaced the lost one since then is too young to have been compacted. (A model or
    a review found a loss without this rule.)

    Raises PositionLost if the topic has another record at the anchor, or ends below it, or if compaction removed the
    record and ``as_of`` is older than the compaction lag. Also raises BrokerUnavailable.
    """
    if anchor is None:
        return
    why = parted(topic, tier_partition, anchor)
    if (
        why is None
        and now_ms - as_of > MIN_COMPACTION_LAG_MS
        and topic.anchor_at(tier_partition, anchor.position) is None
    ):
        why = "compaction took the record by which the tier-state topic would be known again"
    if why is not None:
        raise PositionLost(why, tier_partition=tier_partition, position=anchor.position)


def parted(topic: TierTopic, tier_partition: int, anchor: Anchor) -> str | None:
    """Return how the topic differs from the history of this anchor, or None if no difference is visible."""
    record = topic.anchor_at(tier_partition, anchor.position)
    if record is None:
        ended = topic.end(tier_partition) <= anchor.position
        return "the tier-state topic ends below this record, which it had" if ended else None
    return None if record == anchor else "the tier-state topic has another record there than it had: another history"
