"""A worker whose operations are noted by kind, and a partition in which every kind has something to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.leader.expiry import say, say_order
from tests.leader.world import Process, World
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.leader.observe import GroupPolicy, Observer
from tierstate.leader.partition_worker import PartitionWorker, WorkerTools
from tierstate.leader.term import TermSession
from tierstate.rules.decide import Policy
from tierstate.rules.observed import Observed
from tierstate.runtime.listener import CopyFailed, OperationFailed, TrimFailed
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.facts import LocalTrimIntended, OrderKind
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset, Position
from tierstate.state.segment import SegmentState

KIND_OF = {
    "append copy-started": "copy",
    "append trim-intended": "trim",
    "append log-start": "expire",
    "append delete-started": "condemn",
    "delete objects": "remove",
    "delete-records": "cut",
    "append tombstone": "erase",
    "append leader-elected": "term",
}
"""Kinds by the first step of an operation. Expiry condemns, cuts and removes; the sweep condemns."""


class Pretended(Observer):
    """An observer whose observation a test may change before a decision."""

    desk: Desk

    def __call__(self, partition: TopicIdPartition, name: str) -> Observed:
        return self.desk.observed(super().__call__(partition, name))


@dataclass
class Desk:
    """A worker without any grace, and the list of its operations."""

    process: Process
    archived_to: Callable[[int], Position | None] = lambda tier_partition: None
    observed: Callable[[Observed], Observed] = lambda seen: seen
    acts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        process, world = self.process, self.world
        groups = GroupPolicy(False, (), 0.0)
        observe = Pretended(process.context, groups, lambda name, config: config)
        observe.desk = self
        tools = WorkerTools(
            process.context,
            observe,
            process.tools,
            Policy(0, 0, False, expire_grace_ms=0, sweep_grace_s=0.0),
            process.board,
            process.events.append,
            self.archived_to,
        )
        self.worker = PartitionWorker(tools, world.partition, world.name)

    @property
    def world(self) -> World:
        return self.process.world

    def advance(self) -> bool:
        """Take one step, on all facts until now, and note its kind."""
        self.process.context.view.require_fresh(0, 0)
        steps = self.worker.steps()
        first = None
        while True:
            try:
                step = next(steps)
            except StopIteration as done:
                if first is not None:
                    self.acts.append(KIND_OF[first])
                return bool(done.value)
            first = first or step

    def work(self, seconds: int = 0) -> Desk:
        """Work until nothing is left to do or something failed, then again every second for ``seconds`` seconds."""
        for _ in range(seconds + 1):
            while self.advance():
                pass
            self.world.clock.advance(1)
        return self

    def one_at_a_time(self, times: int) -> list[str]:
        """Return the kinds of the next operations; none of them fails."""
        self.acts.clear()
        for _ in range(times):
            assert self.advance(), self.acts
        return self.acts


def fenced_trims(world: World, session: TermSession, number: int = 4) -> list[str]:
    """Append facts that the term in force may erase, each by its own operation. ``session``: an ended term."""
    for counter in range(number):
        say(world, LocalTrimIntended(world.partition, Offset(5), session.term, 900 + counter, session.now()))
    return world.topic.keys()[-number:]


def abandoned(world: World, number: int = 1) -> list[str]:
    """Leave copies that died before their manifests. Return their base keys."""
    for _ in range(number):
        process = world.process()
        session = process.begin()
        run_until(copy_segment(session, process.candidate(session), process.tools), 3)
    segments = world.view().segments.values()
    return [each.subject.object_key for each in segments if each.subject and each.attempt]


def erasable_left(world: World) -> set[str]:
    return {live.key for live in world.view().others if isinstance(live.fact, LocalTrimIntended)}


@dataclass
class Busy:
    """All five kinds have something to do: three segments to copy, one to trim, to expire and to sweep, tombstones."""

    world: World

    def __post_init__(self) -> None:
        world = self.world
        (self.abandoned,) = abandoned(world)
        process = world.process()
        lower = process.begin()
        process.copy_next(lower), process.copy_next(lower)
        say_order(world, OrderKind.DELETE_RECORDS, world.bases[1])
        self.desk = Desk(world.process())
        self.desk.advance()
        self.trims = fenced_trims(world, lower)

    def fail(self, kind: str) -> None:
        """Fail every operation of this kind for ever, by refusing its first fact."""
        world, swept = self.world, str(self.abandoned)
        segment_ids = {each.subject.object_key: sid for sid, each in world.view().segments.items() if each.subject}

        def refuse(number: int, key: str) -> None:
            tombstone = key in world.topic.keys()
            first_facts = {
                "copy": key.endswith("/copy-started"),
                "trim": "/trim/" in key,
                "expire": "/log-start/" in key,
                "sweep": str(segment_ids[swept]) in key and "/delete-started" in key,
                "erase": tombstone,
            }
            if first_facts[kind] and tombstone == (kind == "erase"):
                raise BrokerUnavailable("no answer")

        world.topic.on_append = refuse

    def done(self) -> dict[str, bool]:
        """Return which kinds have done all they had to do."""
        world, view = self.world, self.world.view()
        swept = [each for each in view.segments.values() if each.state is SegmentState.ABANDONED]
        return {
            "copy": view.coverage.prefix_end(world.bases[1]) == world.bases[-1] - 1,
            "trim": world.local_start() >= world.bases[2],
            "expire": view.log_start == world.bases[1],
            "sweep": not swept,
            "erase": erasable_left(world).isdisjoint(self.trims),
        }


def failures(process: Process, kind: str) -> int:
    """Return how many failures of this kind the listener got."""
    events = process.events
    if kind == "copy":
        return sum(isinstance(e, CopyFailed) for e in events)
    if kind == "trim":
        return sum(isinstance(e, TrimFailed) and "no answer" in e.error for e in events)
    return sum(isinstance(e, OperationFailed) and e.operation == kind for e in events)
