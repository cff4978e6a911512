"""A plain producer with rights on the tier-state topic: its facts name the only copies of another topic, ``events``.

It writes any facts about a partition of its own, ``evil``, also terms of any epoch. In some histories it also writes
about ``orders``, in the name of the term in force, so that agents are not fenced by it. It writes each key once. The
seed and the step alone decide its actions, so that histories without a forger stay the same.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.leader.forger import events_segment, forged, keys_of, stolen
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import ObjectExists, Unavailable
from tierstate.state.facts import Fact, LeaderElected
from tierstate.state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, partition_prefix
from tierstate.state.offsets import Offset, Position
from tierstate.state.segment import RemoteSegment, Term

if TYPE_CHECKING:
    from tests.histories.world import World

EVIL = TopicIdPartition(TopicId.of(b"evil, a topic id"), 0)
EVENTS = tuple(events_segment(7_700 + number, 100 * number, 100 * number + 99) for number in range(4))
THEIRS = frozenset(key for segment in EVENTS for key in keys_of(segment))
"""Objects that no agent of a history may delete, and no view may show as readable."""
EPOCHS = (0, 1, 5, 2**31 - 2)


class Forger:
    """Forges facts in some histories (``active``), and in some of these about ``orders`` too (``at_home``)."""

    def __init__(self, world: World) -> None:
        self._world = world
        chance = Random(f"forger of {world.seed}").random()
        self.active, self.at_home = chance < 0.2, chance < 0.06
        self.forged = False
        """Whether a fact about ``orders`` was forged."""
        self._terms: list[Term] = []
        self._said: set[str] = set()
        world.topic.not_ours = partition_prefix(EVIL)

    def may_forge(self) -> None:
        """Forge facts now and then. Called after each step of the history."""
        if not self.active:
            return
        rnd = Random(f"forger of {self._world.seed} at {self._world.now}")
        if rnd.random() >= 0.06:
            return
        if not self._terms or rnd.random() < 0.2:
            self._elect(rnd.choice(EPOCHS))
        ruling = self._world.promises.live.view().term
        if self.at_home and ruling is not None and rnd.random() < 0.3 and self._world.cluster.exists:
            segment = stolen(rnd.choice(EVENTS), self._world.cluster.partition, "orders", ruling)
        else:
            segment = stolen(rnd.choice(EVENTS), EVIL, "evil", rnd.choice(self._terms))
        kinds = ("copy-started", "copy-finished", "delete-started", "delete-finished")
        for kind in kinds[rnd.choice((0, 0, 0, 1, 2)) : rnd.choice((1, 2, 2, 3, 4))]:
            self.forge(segment, kind)

    def forge(self, segment: RemoteSegment, kind: str) -> None:
        """Forge one fact about a segment. All objects of ``events`` are put before."""
        for key in THEIRS:
            self._put(key)
        if segment.partition != EVIL:
            self.forged = True
        self._say(forged(segment)[kind])

    def _elect(self, epoch: int) -> None:
        identity = FactId.of(len(self._terms).to_bytes(16, "little"))
        lineage, at = Lineage.of((0, 0)), self._world.clock.now_ms()
        term = Term(LeaderEpoch(epoch), Position(len(self._world.topic.log)), identity)
        self._say(LeaderElected(EVIL, "evil", term.epoch, identity, BrokerId(7), "", lineage, Offset(0), at))
        self._terms.append(term)

    def _say(self, fact: Fact) -> None:
        key = key_of(fact)
        if key not in self._said:
            self._said.add(key)
            self._world.seen["forged"] += 1
            self._world.topic.land_unasked(key, encode_fact(fact))

    def _put(self, key: str) -> None:
        while True:
            try:
                self._world.store.put_if_absent(key, b"the only copy")
                return
            except ObjectExists:
                return
            except Unavailable:
                continue
