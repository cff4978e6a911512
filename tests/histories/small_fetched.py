"""A small world whose two agents copy by Fetch. One of them owns the partition. There is one more choice:

``swap``: the owner freezes past its session, and the other agent takes over. When the first one is chosen, it takes its
next step before it hears that it lost the partition.
"""

from __future__ import annotations

from random import Random

from tests.histories.fetched import FetchedProcess, FetchedWorld
from tests.histories.small_world import SmallWorld
from tierstate.tail.fetch_log import RollPolicy
from tierstate.tail.ownership import SESSION_S


class SmallFetchedWorld(SmallWorld, FetchedWorld):
    """A world with a few segments; agents 0 and 1 copy them. The group's threads run before each choice."""

    choices = ("elect", "swap")

    def __init__(self, segments: int) -> None:
        super().__init__(segments)
        self.hear()

    def draw(self, rnd: Random) -> None:
        self.agents = 2
        self.roll = RollPolicy(1 << 20, 30_000.0, 1 << 20)

    def take(self, choice: str) -> bool:
        """Take a choice. The threads of a chosen agent's membership come after its step, and those of others before."""
        if choice == "swap":
            self.swap()
            return True
        self.hear(*(each for each in self.copiers if choice == str(each.broker)))
        happened = super().take(choice)
        self.hear()
        return happened

    def hear(self, *silent: FetchedProcess) -> None:
        """Let the group hear from all agents but these, and them from the group."""
        awake = [each for each in self.copiers if each not in silent]
        self.group.listen([each.member for each in awake])
        for each in awake:
            each.ownership.look()

    def swap(self) -> None:
        owner = self.copiers[self.responsible()]
        self.clock.advance(SESSION_S + 1)
        self.hear(owner)
        self.hear(owner)

    def frozen_before(self, step: str) -> FetchedProcess:
        """Let the owner work up to this step, and return it."""
        owner = self.copiers[self.responsible()]
        while owner.next_step != step:
            if not self.take(str(owner.broker)):
                self.cluster.produce()
        return owner
