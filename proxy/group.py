"""One consumer group of a proxy that reads the bucket alone: Kafka's classic protocol, in this process's memory.

    EMPTY ── join ──> JOINING ── all joined, or too late ──> SYNCING ── the leader's assignment ──> STABLE
                      ^                                        │                                      │
                      └──────── a member joins, leaves, or is silent for its session's time-out ──────┘

Nothing waits here: callers call `step` until the group has what they need. After a restart of the proxy members are
unknown and join again; committed offsets are in a file (`group_offsets.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

FIRST_JOIN_S = 0.5
"""Seconds for which the first member of a group waits for others, so that they share one rebalance."""
MOST_MEMBERS = 1000
NONE, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, REBALANCE, TOO_MANY = 0, 22, 23, 25, 27, 81


class Phase(Enum):
    EMPTY = "empty"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@dataclass(slots=True)
class Member:
    """A member. ``protocols``: its metadata by protocol, the preferred one first. ``waits``: requests of it that wait.

    ``joined``: whether it has joined the next generation. Times are in seconds.
    """

    id: str
    instance: str | None
    protocols: dict[str, bytes]
    session_s: float
    rebalance_s: float
    seen: float
    joined: bool = True
    waits: int = 0
    assignment: bytes = b""

    @property
    def client_id(self) -> str:
        """Return the client's name, with which `groups.py` begins each id."""
        return self.id.rpartition("-")[0]


class Group:
    def __init__(self) -> None:
        self.phase = Phase.EMPTY
        self.generation = 0
        self.kind = self.protocol = self.leader = ""
        self.members: dict[str, Member] = {}
        self._deadline, self._waits_for_first = 0.0, False

    def join(self, member: Member, kind: str, now: float) -> int:
        """Add a member to the next generation, in place of one with its id or instance. Return an error code."""
        others = [
            each
            for each in self.members.values()
            if each.id != member.id and (member.instance is None or each.instance != member.instance)
        ]
        if len(others) >= MOST_MEMBERS:
            return TOO_MANY
        if not member.protocols or (others and (kind != self.kind or not _common([*others, member]))):
            return INCONSISTENT_PROTOCOL
        self.kind = kind
        self._prepare(now)
        self.members = {each.id: each for each in [*others, member]}
        return NONE

    def leave(self, member_id: str, now: float) -> int:
        if self.members.pop(member_id, None) is None:
            return UNKNOWN_MEMBER
        self._prepare(now)
        return NONE

    def member_of(self, instance: str | None) -> str:
        """Return the id of the member with this instance id, or no id."""
        return next((each.id for each in self.members.values() if instance and each.instance == instance), "")

    def check(self, member_id: str, generation: int, now: float) -> int:
        """Note that a member lives. Return an error code if it is not of this generation, or must join the next one."""
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER
        member.seen = now
        if generation != self.generation:
            return ILLEGAL_GENERATION
        return REBALANCE if self.phase is Phase.JOINING else NONE

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Take the leader's assignments, which end the rebalance."""
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self.phase = Phase.STABLE

    def step(self, now: float) -> None:
        """Remove silent members, and complete a rebalance that all have joined, or whose time is over."""
        silent = [each.id for each in self.members.values() if not each.waits and each.seen + each.session_s < now]
        for member_id in silent:
            self.leave(member_id, now)
        if self.phase is not Phase.JOINING:
            return
        late = now >= self._deadline
        if not late and (self._waits_for_first or not all(each.joined for each in self.members.values())):
            return
        self.members = {each.id: each for each in self.members.values() if each.joined}
        self.generation += 1
        if not self.members:
            self.phase = Phase.EMPTY
            return
        for member in self.members.values():
            member.joined, member.seen, member.assignment = False, now, b""
        self.leader = self.leader if self.leader in self.members else next(iter(self.members))
        common = _common(list(self.members.values()))
        self.protocol = next(name for name in self.members[self.leader].protocols if name in common)
        self.phase = Phase.SYNCING

    def _prepare(self, now: float) -> None:
        if self.phase is Phase.JOINING:
            return
        longest = max((each.rebalance_s for each in self.members.values()), default=FIRST_JOIN_S)
        self._deadline, self._waits_for_first = now + longest, self.phase is Phase.EMPTY
        self.phase = Phase.JOINING


def _common(members: list[Member]) -> set[str]:
    return set.intersection(*(set(each.protocols) for each in members))
