"""The end of the tier-state topic is lost on every replica at once, as in a power cut. A person recovers it later.

From the cut to the recovery no agent may delete the only copy of a record. After the recovery all promises hold again.
A delete whose objects are deleted is never cut: `rules/expire.py` keeps objects until the archive has their delete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, TypeVar

from tests.histories.cluster import NAME, HistoryControl
from tests.histories.process import follow
from tests.histories.promises import listed
from tests.histories.replica import Written
from tests.histories.topic import MIN_COMPACTION_LAG, ProcessTopic
from tests.twins.counting_ids import CountingIds
from tierstate.follower.follower import Follower
from tierstate.leader.lost_facts import LostFactsTools, LostFactsWatch, look_for_lost_facts
from tierstate.leader.recover import RecoverTools, add_lost_facts, recover_partition
from tierstate.leader.term import TermContext
from tierstate.rules.lost_facts import LostFacts
from tierstate.runtime.operation import run
from tierstate.state.errors import Unavailable
from tierstate.state.facts import LiveFact, SegmentDeleteStarted
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.partition_view import PartitionView

if TYPE_CHECKING:
    from tests.histories.world import World

SHARE = 0.1
"""The share of histories in which the tail is cut."""
Answer = TypeVar("Answer")


class CutTail:
    """The cut of one history. ``at``: the step before which it happens; ``after``: the steps until the recovery."""

    def __init__(self, world: World, steps: int) -> None:
        self._world, self._rnd = world, Random(f"cut tail of {world.seed}")
        self.at = self._rnd.randrange(steps // 4, steps) if self._rnd.random() < SHARE else steps
        self.after = self._rnd.randint(10, 90)
        self.happened = self.waiting = False
        self._epoch = -1
        self._copies: dict[int, set[str]] = {}
        """Number of a batch to the base keys of the segments that had it when the facts were lost."""

    def step(self, step: int) -> None:
        """Cut or recover the tail, if it is time. Called before each step of the history."""
        world = self._world
        if step >= self.at and not self.happened and not (world.forger.active or world.cluster.unclean):
            lowest = self._lowest()
            if lowest < len(world.topic.log):
                self.at = step
                self.cut(self._rnd.choice((lowest, self._rnd.randrange(lowest, len(world.topic.log)))))
        elif self.waiting and step >= self.at + self.after and world.cluster.exists and not world.later_release.binds:
            self.recover()

    def _lowest(self) -> int:
        """Return the lowest position of a legal cut: archived and old facts and executed deletes must stay."""
        world = self._world
        there = {info.key for info in listed(world)}
        young = bisect_left(world.topic.times, world.clock.now_ms() - MIN_COMPACTION_LAG)
        deletes = [
            live.position + 1
            for each in world.promises.history.view().segments.values()
            for live in each.facts
            if _condemns(live) and each.remote and not _whole(each.remote.object_key, there)
        ]
        return max(young, world.archived or 0, world.topic.start, *deletes)

    def cut(self, end: int) -> None:
        """Cut the topic at ``end``. Every agent restarts, with its view, a copy of it, or no view."""
        world, promises = self._world, self._world.promises
        world.bit_rot.end()
        there = {info.key for info in listed(world)}
        self._copies = {
            batch.number: {
                each.object_key
                for each in promises.live.view().readable
                if promises.records.stored_in(each).get(batch.base) == batch.data
            }
            for batch in world.cluster.truth
        }
        self.happened = self.waiting = True
        world.cluster.unseen |= set(range(world.cluster.epoch + 1))
        world.topic.cut(end)
        world.later_release.lose_tail()
        promises.lose_tail({key.rsplit(".", 1)[0] for key in there})
        told = promises.live.view().settled_lineages
        world.cluster.settled &= {entry.epoch for fact in told for entry in fact.lineage.entries}
        self._restart()
        world.seen["tail cut"] += 1

    def _restart(self) -> None:
        world = self._world
        for process in list(world.processes):
            world.restart(process, world.left_of(process.kill()))
        world.followers = [follow(world, 100 + at, each.store, kind=True) for at, each in enumerate(world.followers)]

    def check(self) -> None:
        """Raises AssertionError if an object with the only copy of a record was deleted before the recovery."""
        there = {info.key for info in listed(self._world)}
        for batch in self._unreadable():
            kept = any(_whole(base, there) for base in self._copies.get(batch.number, ()))
            assert kept, f"LOSS of the only copy of offset {batch.base}, whose facts were lost"

    def _unreadable(self) -> Iterator[Written]:
        """Yield batches that are not on the leader's disk, and whose copies no fact names."""
        world = self._world
        readable = world.promises.live.view().readable
        for batch in world.cluster.truth:
            if world.cluster.kept_from(batch) >= batch.end or batch.number in world.cluster.cut:
                continue
            if batch.end > world.cluster.leader.start:
                continue
            if not any(world.promises.records.stored_in(each).get(batch.base) == batch.data for each in readable):
                yield batch

    def look_again(self) -> None:
        """Order one more recovery after an unclean election, if only lost facts name a copy of missing records."""
        if self.happened and not self.waiting and self._world.cluster.epoch != self._epoch:
            self._epoch = self._world.cluster.epoch
            if any(self._copies.get(batch.number) for batch in self._unreadable()):
                self.at, self.waiting = self._world.now, True

    def recover(self) -> None:
        """Stop all agents, add the lost facts as ``recover T:P --execute`` does, and start the agents again."""
        world = self._world
        number = len(world.topic.log)
        while world.topic.flight:
            world.topic.land_late()
        for process in world.processes:
            process.kill()
        follower = follow(world, 200, kind=True)
        lost = _asked(lambda: self._look(follower))
        if lost.segments:
            topic = ProcessTopic(world.topic, 200, kind=True)
            tools = RecoverTools(topic, follower, world.clock, CountingIds(500 + number))
            act = add_lost_facts(lost, tools)
            if not follower.facts(world.cluster.partition):
                act = recover_partition(lost.plan, tools)
            world.promises.replaying = True
            run(act)
            world.promises.replaying = False
            world.seen["tail recovered"] += 1
        self.waiting, self._epoch = False, world.cluster.epoch
        self._restart()

    def _look(self, follower: Follower) -> LostFacts:
        partition, control = self._world.cluster.partition, HistoryControl(self._world.cluster)

        def view() -> PartitionView:
            follower.require_fresh(0, 0)
            return follower.partition(partition)

        return look_for_lost_facts(self._tools(), NAME, view(), view, control.bounds(NAME, 0).local_start)

    def watch(self, context: TermContext) -> LostFactsWatch | None:
        """Return the watch of an agent, or None before the cut: there it would change a history's random choices."""
        if not self.happened:
            return None
        return LostFactsWatch(context, self._world.cluster.partition, NAME, self._tools(), self._world.tell)

    def _tools(self) -> LostFactsTools:
        return LostFactsTools(self._world.store, ObjectKeys(), "histories")


def _condemns(live: LiveFact) -> bool:
    return isinstance(live.fact, SegmentDeleteStarted)


def _whole(base: str, there: set[str]) -> bool:
    return all(object_key(base, kind) in there for kind in ObjectKind)


def _asked(ask: Callable[[], Answer]) -> Answer:
    """Repeat the call until the store answers."""
    while True:
        try:
            return ask()
        except Unavailable:
            continue
