"""Operators, agents and readers append facts to the tier-state topic between the steps of a history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.histories.topic import DAY
from tierstate.state.facts import (
    ContradictionSettled,
    Fact,
    IntegrityHold,
    LineageSettled,
    OperatorOrder,
    OrderKind,
    ReaderLease,
)
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs

if TYPE_CHECKING:
    from tests.histories.world import World


class People:
    """Appends facts that no term fences: leases, orders, holds, and what a person settles."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self) -> None:
        """Append a fact of an operator or a reader. No term fences it, and its writer does not know the leader."""
        world = self._world
        world.orders += 1
        identity = FactId.of(world.orders.to_bytes(16, "little"))
        end = world.cluster.leader.end
        now = world.clock.now_ms()
        fact: Fact
        if self.settles(identity, now):
            return
        if world.slow:
            world.say(world.slow.pop())
            return
        if world.rnd.random() < 0.15:
            self.hold_or_release(identity, now)
            return
        if world.rnd.random() < 0.4 and end:
            fact = self.lease(identity, now, end)
        else:
            kinds = [OrderKind.PAUSE, OrderKind.RESUME, OrderKind.RESUME, OrderKind.DELETE_RECORDS]
            kind = world.rnd.choice(kinds)
            force = world.rnd.random() < 0.2
            if kind is OrderKind.DELETE_RECORDS:
                world.order_below(world.rnd.randint(0, end), force)
                return
            fact = OperatorOrder(world.cluster.partition, identity, kind, None, force, "ops", now)
        world.say(fact)

    def lease(self, identity: FactId, now: TimestampMs, end: int) -> ReaderLease:
        """Return a reader's first lease, or every other time a lease that continues one that is not over."""
        world = self._world
        first = world.rnd.randrange(end)
        offsets = OffsetRange(Offset(first), Offset(world.rnd.randrange(first, end)))
        expires = TimestampMs(now + world.rnd.randint(1, DAY))
        begun = [each for each in world.promises.live.view().leases if each.expires_at >= now]
        if begun and world.orders % 2:
            return replace(begun[-1], id=identity, expires_at=expires)
        return ReaderLease(world.cluster.partition, identity, offsets, f"spark-{world.orders}", expires)

    def hold_or_release(self, identity: FactId, now: TimestampMs) -> None:
        """Append an agent's hold, as after a contradiction; or erase a hold, as a person does."""
        world = self._world
        held = world.promises.live.view().holds
        if held:
            world.topic.land(key_of(held[0]), None)
        else:
            world.say(IntegrityHold(world.cluster.partition, identity, BrokerId(0), "seen", "one", "two", now))

    def settles(self, identity: FactId, now: TimestampMs) -> bool:
        """Settle a contradiction or an unknown lineage, as a person does. Return whether there was one."""
        world = self._world
        view, cluster = world.promises.live.view(), world.cluster
        if view.contradictions:
            world.say(
                ContradictionSettled(cluster.partition, identity, view.contradictions[0], now % 2 == 0, "ops", now)
            )
            return True
        if not (view.lineage_unknown and view.term and view.term.epoch == cluster.epoch and view.lineage.entries):
            return False
        self.tell_past(identity, now)
        return True

    def tell_past(self, identity: FactId, now: TimestampMs) -> None:
        """Append the true lineage of the leader's log, as a person settles it."""
        world = self._world
        cluster, past = world.cluster, world.cluster.past()
        cluster.changes, cluster.looked = cluster.changes + 1, -1
        cluster.settled |= {entry.epoch for entry in past.entries}
        world.say(LineageSettled(cluster.partition, identity, past, "ops", now))
