"""Consumer groups of a generated history: plain consumers, which lose records that are trimmed before they read them.

Groups join, read on, are reset, stop reading and leave, whatever agents do; a listing may lack some of them. Only some
histories have groups. Their random generator is their own, so that histories without groups stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.histories.cluster import Cluster
from tests.histories.topic import HOUR
from tests.twins.manual_clock import ManualClock
from tierstate.broker.groups import GroupPosition, GroupProblem, TopicGroups
from tierstate.leader.observe import GroupPolicy
from tierstate.leader.trimmer import LAST_CHECKS_S
from tierstate.state.offsets import Offset

SHARE = 0.4
"""The share of histories that have groups."""
MOVES = 0.12
FREEZES = 0.02
HOLD_MAX_MS = 2 * HOUR
GONE = "gone"
"""The name of groups that stay at their first offset for ever."""
POLICY = GroupPolicy(True, ("tmp-.*",), HOLD_MAX_MS / 1000)


@dataclass
class Group:
    """``committed`` None: it has a member, and no commit. ``stood``: offset to when it was first there (ms)."""

    name: str
    committed: int | None
    stood: dict[int | None, int] = field(default_factory=dict)


class Groups:
    """The groups of the history's topic. ``any``: this history has groups."""

    def __init__(self, seed: int, cluster: Cluster, clock: ManualClock, seen: Counter[str]) -> None:
        self._seed, self._cluster, self._clock, self._seen = seed, cluster, clock, seen
        self._rnd = Random(f"groups of {seed}")
        self.any = self._rnd.random() < SHARE
        self.groups: list[Group] = []
        self._came = 0

    def step(self, number: int) -> None:
        """Change a group now and then. Called before each step of the history."""
        self._rnd.seed(f"groups of {self._seed} at {number}")
        if self.any and self._rnd.random() < MOVES:
            self._move()

    def freeze(self) -> None:
        """Now and then, freeze the agent that queries a broker: a group changes, and the last checks take too long."""
        if self.any and self._rnd.random() < FREEZES:
            self._move()
            self._clock.advance(LAST_CHECKS_S * 2)

    def come(self, committed: int | None, name: str = "group") -> Group:
        self._came += 1
        group = Group(f"{name}-{self._came}", None)
        self.groups.append(group)
        self.stand(group, committed)
        return group

    def stand(self, group: Group, committed: int | None) -> None:
        group.committed = committed
        group.stood.setdefault(committed, self._clock.now_ms())

    def listing(self) -> TopicGroups:
        """Return all groups as Kafka lists them. Now and then a broker fails to list its groups."""
        found = [GroupPosition(each.name, 0, _offset(each.committed)) for each in self.groups]
        if self.any and self._rnd.random() < 0.05:
            return TopicGroups(tuple(found[1:]), (GroupProblem(None, "a broker did not list its groups"),))
        return TopicGroups(tuple(found))

    def needing(self, before: int) -> Iterator[Group]:
        """Yield counted groups with unread records below ``before``, unless they were first there `HOLD_MAX_MS` ago."""
        for group in self.groups:
            needs = self._cluster.leader.start if group.committed is None else group.committed
            if needs >= before or POLICY.ignores(group.name):
                continue
            if self._stands_ms(group) <= HOLD_MAX_MS:
                yield group
            else:
                self._seen["group given up"] += 1

    def _stands_ms(self, group: Group) -> int:
        """Return how long (ms) the group has been there with unread records: at least as long as agents can know."""
        since = group.stood[group.committed]
        if group.committed is not None and not self._cluster.unclean:
            unread = (batch.time for batch in self._cluster.truth if batch.end > (group.committed or 0))
            since = max(since, next(unread, since))
        return self._clock.now_ms() - since

    def _move(self) -> None:
        rnd, start, end = self._rnd, self._cluster.leader.start, self._cluster.leader.end
        able = [each for each in self.groups if not each.name.startswith(GONE)]
        if not able or rnd.random() < 0.1:
            self.come(rnd.choice((None, end, end, start)), rnd.choice(("group", "group", GONE, "tmp")))
            self._seen["group came"] += 1
            return
        group, chance = rnd.choice(able), rnd.random()
        if chance < 0.15:
            self.groups.remove(group)
        elif chance < 0.4:
            self.stand(group, rnd.choice((start, rnd.randint(start, end))))
            self._seen["group reset"] += 1
        else:
            at = max(start, group.committed or 0)
            self.stand(group, rnd.choice((end, end, rnd.randint(min(at, end), end))))


def _offset(committed: int | None) -> Offset | None:
    return None if committed is None else Offset(committed)
