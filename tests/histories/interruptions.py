"""A person pauses the partition or changes the tier-state topic's settings, just before a decided operation."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tierstate.leader.term import SAFE_FOR_S
from tierstate.state.facts import OperatorOrder, OrderKind
from tierstate.state.ids import FactId

if TYPE_CHECKING:
    from tests.histories.world import World

BEFORE = {"append log-start", "append delete-started", "append tombstone", "delete objects", "delete-records"}


class Interruptions:
    """Interrupts agents in some histories (``active``). Its own random generator keeps other histories unchanged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.active = Random(f"interruptions of {world.seed}").random() < 0.15
        self._paused = False

    def step(self) -> None:
        """Interrupt agents now and then. Called before each step of the history."""
        world = self._world
        if not self.active:
            return
        rnd = Random(f"interruptions of {world.seed} at {world.now}")
        if world.topic.drift is not None and rnd.random() < 0.1:
            world.topic.drift = None
        if self._paused and rnd.random() < 0.1:
            self._order(OrderKind.RESUME)
        if rnd.random() < 0.3 and any(each.busy and each.next_step in BEFORE for each in world.processes):
            if rnd.random() < 0.5:
                world.clock.advance(SAFE_FOR_S)  # the person needs this long to type it
                world.topic.drift = "min.compaction.lag.ms=0"
                world.seen["drift"] += 1
            else:
                self._order(OrderKind.PAUSE)

    def _order(self, kind: OrderKind) -> None:
        world = self._world
        self._paused = kind is OrderKind.PAUSE
        world.orders += 1
        identity = FactId.of(world.orders.to_bytes(16, "little"))
        world.say(OperatorOrder(world.cluster.partition, identity, kind, None, False, "ops", world.clock.now_ms()))
