"""The consumer group of the agents that copy by Fetch, in a history: its coordinator, and a member's consumer.

The tier-state topic of a history has one partition, so the group has at most one owner. A member that is silent for the
session's time is given up, and learns of it when it polls again: until then two processes may believe that they own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.twins.manual_clock import ManualClock
from tierstate.tail.ownership import CONFIRMED_S, SESSION_S

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
Called = Callable[[Any, Collection[Any]], None]


class Coordinator:
    """``owner``: the member that has the partition; ``next_owner``: the one that gets it once the owner lets go."""

    def __init__(self, clock: ManualClock, seen: Counter[str]) -> None:
        self._clock, self._seen = clock, seen
        self.owner: HistoryConsumer | None = None
        self.next_owner: HistoryConsumer | None = None
        self.heard: dict[HistoryConsumer, float] = {}
        """Member to the time of its last heartbeat."""

    def join(self, member: HistoryConsumer) -> None:
        self.heard[member] = self._clock.monotonic()
        self.settle()

    def leave(self, member: HistoryConsumer) -> None:
        self.heard.pop(member, None)
        self.settle()

    def settle(self) -> None:
        """Give the partition to a member, if no member has it."""
        if self.owner not in self.heard:
            self.owner = None
        if self.next_owner not in self.heard:
            self.next_owner = self.owner or next(iter(self.heard), None)
        if self.owner is None:
            self.owner = self.next_owner

    def rebalance(self, rnd: Random) -> None:
        """Decide that another member is to have the partition."""
        others = [member for member in self.heard if member is not self.owner]
        if others:
            self.next_owner = rnd.choice(others)
            self._seen["rebalance"] += 1

    def let_go(self, member: HistoryConsumer) -> None:
        if self.owner is member:
            self.owner = None
            self.settle()

    def listen(self, awake: Collection[HistoryConsumer]) -> None:
        """Take the heartbeats of the members whose processes run, and give up members that were silent too long."""
        now = self._clock.monotonic()
        for member in awake:
            if member in self.heard:
                self.heard[member] = now
        silent = [member for member, heard in self.heard.items() if now - heard > SESSION_S]
        for member in silent:
            del self.heard[member]
            self._seen["member given up"] += 1
        if silent:
            self.settle()


class HistoryConsumer:
    """The part of librdkafka's consumer that `Ownership` uses. ``confirmed``: the coordinator's last answer to it."""

    def __init__(self, group: Coordinator, clock: ManualClock, rnd: Random) -> None:
        self._group, self._clock, self._rnd = group, clock, rnd
        self._has = False
        self.confirmed = float("-inf")
        group.join(self)

    def subscribe(self, topics: list[str], on_assign: Called, on_revoke: Called, on_lost: Called) -> None:
        self._partitions = [TopicPartition(topics[0], 0)]
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost

    def poll(self, timeout: float) -> None:
        """Learn what the coordinator decided."""
        group = self._group
        if self not in group.heard:
            if self._has:
                self._has = False
                self._on_lost(self, self._partitions)
            group.join(self)
        elif self._has and group.next_owner is not self:
            self._has = False
            self._on_revoke(self, self._partitions)
            group.let_go(self)
        elif not self._has and group.owner is self:
            self._has = True
            self._on_assign(self, self._partitions)

    def commit(self, offsets: Collection[Any], asynchronous: bool) -> None:
        """Raise the coordinator's refusal. Now and then the process freezes right after the answer."""
        group = self._group
        if self not in group.heard or group.owner is not self:
            raise KafkaException(KafkaError(UNKNOWN_MEMBER_ID))
        if group.next_owner is not self and self._rnd.random() < 0.5:
            raise KafkaException(KafkaError(REBALANCE_IN_PROGRESS))
        self.confirmed = self._clock.monotonic()
        if self._rnd.random() < 0.01:
            self._clock.advance(SESSION_S * 2)
            group.listen([member for member in group.heard if member is not self])

    @property
    def owns(self) -> bool:
        """Return whether the coordinator has this member as the owner, and confirmed it a short time ago."""
        return self._group.owner is self and self._clock.monotonic() - self.confirmed <= CONFIRMED_S

    def incremental_assign(self, partitions: Collection[Any]) -> None:
        """Do nothing: the partition is not read."""

    incremental_unassign = pause = incremental_assign

    def close(self) -> None:
        self._group.leave(self)


def new_consumer(group: Coordinator, clock: ManualClock, rnd: Random) -> Callable[[Mapping[str, Any]], HistoryConsumer]:
    """Return the function by which `Ownership` makes its consumer."""
    return lambda config: HistoryConsumer(group, clock, rnd)
