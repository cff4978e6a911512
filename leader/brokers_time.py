"""The brokers' time, which agents use for deletes and readers use for leases."""

from __future__ import annotations

from ..broker.tier_topic import AppendTime, TierTopic
from ..rules.clocks import MACHINE, STORE, Clocks, Witness
from ..runtime.clock import Clock
from ..state.ids import FactId, TopicIdPartition
from ..state.keys import KeyKind, partition_prefix, tier_partition_of
from ..state.offsets import TimestampMs
from ..storage.object_store import ShowsDate

PROMPT_S = 5.0
"""An append whose answer took longer than this does not show the time precisely enough."""
KEEP_S = 3_600.0
"""Appends older than this are not compared, except the newest one."""
AGAIN_S = 300.0
"""The shortest time between two appends that an agent makes only because clocks are in doubt."""


class BrokersTime:
    """A `Clock` that shows the brokers' time: the time of the newest append plus the monotonic seconds since.

    Holds no state of its own. Thread-safe.
    """

    def __init__(self, clock: Clock, topic: TierTopic, store: object) -> None:
        self._clock, self._topic, self._store = clock, topic, store

    def now_ms(self) -> TimestampMs:
        """Return the brokers' time, or the machine's time before the first append of this process."""
        newest = max(self._appends().values(), key=lambda each: each.answered, default=None)
        return self._clock.now_ms() if newest is None else self._now(newest)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def clocks(self) -> Clocks:
        """Return the current time of every clock that can be compared now."""
        now, appends = self._clock.monotonic(), self._appends()
        newest = max((each.answered for each in appends.values()), default=0.0)
        brokers = [
            Witness(f"the broker that leads tier-state partition {number}", self._now(each))
            for number, each in sorted(appends.items())
            if each.answered == newest or now - each.answered < KEEP_S
        ]
        date = self._store.date if isinstance(self._store, ShowsDate) else None
        if date is not None and now - date.seen < KEEP_S:
            brokers.append(Witness(STORE, TimestampMs(date.at + round((now - date.seen) * 1000))))
        return Clocks(Witness(MACHINE, self._clock.now_ms()), tuple(brokers))

    def ask(self, partition: TopicIdPartition, new: FactId) -> None:
        """Learn the time of the broker that has the facts of ``partition``, from the acknowledgement of an append. The
        append is a tombstone for a lease that never existed, so it changes nothing. Raises as `TierTopic.append`.
        """
        number = tier_partition_of(partition, self._topic.mapped_partitions)
        self._topic.append(number, f"{partition_prefix(partition)}{KeyKind.LEASE}/{new}", None)

    def may_ask_again(self, tier_partition: int) -> bool:
        """Return whether the last append to ``tier_partition`` is at least `AGAIN_S` old; then `ask` may be called."""
        last = self._topic.append_times.get(tier_partition)
        return last is None or self._clock.monotonic() - last.answered >= AGAIN_S

    def _appends(self) -> dict[int, AppendTime]:
        appends = self._topic.append_times
        return {number: each for number, each in appends.items() if each.answered - each.sent <= PROMPT_S}

    def _now(self, append: AppendTime) -> TimestampMs:
        return TimestampMs(append.at + round((self._clock.monotonic() - append.answered) * 1000))
