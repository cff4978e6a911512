"""Erasing a fact never changes the meaning of the rest: agents, zombies, crashes, lost and late appends over `meaning`.

The essence of the design's model (`tier_state_model.py`), with production's meaning in place of the model's. The
agents' guards are written out here; each is shown to be needed by a history that goes wrong without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.tiers import few
from tierstate.state.apply import PartitionState
from tierstate.state.facts import LeaderElected, LiveFact, SegmentCopyStarted
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.keys import KeyKind, parse_key
from tierstate.state.meaning import meaning
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import SegmentState, Term

if TYPE_CHECKING:
    from tests.state.conftest import Build

GUARDS = frozenset({"erase fenced first", "new term on unknown", "sweep only ended", "read own writes"})
ERASING_ORDER = (KeyKind.COPY_FINISHED, KeyKind.COPY_STARTED, KeyKind.DELETE_STARTED, KeyKind.DELETE_FINISHED)

Mint = Callable[[int], LiveFact]
"""A fact, once the position at which it lands is known."""


@dataclass
class Append:
    """A record in flight: a fact to mint where it lands, or the key of a tombstone."""

    agent: Agent
    what: Mint | str
    token: int
    landed: Callable[[int], None] | None


@dataclass
class World:
    build: Build
    rnd: random.Random
    guards: frozenset[str]
    log: list[LiveFact | str] = field(default_factory=list)
    live: dict[str, LiveFact] = field(default_factory=dict)
    epoch: int = 1
    leader: Agent | None = None
    objects: dict[int, str] = field(default_factory=dict)
    flight: list[Append] = field(default_factory=list)
    numbers: int = 0
    written_after_sweep: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.history = PartitionState(self.build.partition)  # every fact that ever landed; nothing is erased here

    def fresh(self) -> int:
        self.numbers += 1
        return self.numbers

    def land(self, what: Mint | str) -> int:
        position = len(self.log)
        if isinstance(what, str):
            self.log.append(what)
            self.live.pop(what, None)
        else:
            fact = what(position)
            self.log.append(fact)
            self.live[fact.key] = fact
            self.history.insert(fact)
        return position


def number_of(segment_id: RemoteSegmentId) -> int:
    return int.from_bytes(segment_id.raw, "big")


def in_state(view: PartitionView, *states: SegmentState) -> list[int]:
    return sorted(number_of(sid) for sid, meant in view.segments.items() if meant.state in states)


class Agent:
    def __init__(self, world: World) -> None:
        self.world = world
        self.follower = PartitionState(world.build.partition)
        self.applied = 0
        self.own = -1
        self.crash()

    def crash(self, believes: int | None = None) -> None:
        """The process is gone; its view survives."""
        self.believes = believes
        self.term: Term | None = None
        self.waiting: int | None = None
        self.upload: tuple[int, int] | None = None
        self.own = -1

    def send(self, what: Mint | str, landed: Callable[[int], None] | None = None) -> None:
        self.waiting = self.world.fresh()
        self.world.flight.append(Append(self, what, self.waiting, landed))

    def acknowledged(self, append: Append, position: int) -> None:
        if append.token == self.waiting:
            self.waiting, self.own = None, position
            if append.landed:
                append.landed(position)

    def unknown(self, append: Append) -> None:
        if append.token == self.waiting:
            self.waiting = None
            if "new term on unknown" in self.world.guards:
                self.term = self.upload = None

    def follow(self) -> PartitionView:
        world = self.world
        end = world.rnd.randint(self.applied, len(world.log)) if world.rnd.random() < 0.6 else len(world.log)
        for landed in world.log[self.applied : end]:
            if isinstance(landed, str):
                self.follower.erase(landed)
            else:
                self.follower.insert(landed)
        self.applied = end
        return self.follower.view()

    def begin(self, epoch: int) -> None:
        number, build = self.world.fresh(), self.world.build

        def elected(position: int) -> None:
            self.term = build.term(epoch, position, number)

        self.send(lambda position: build.leader(position, epoch, number=number), elected)

    def step(self) -> None:
        view = self.follow()
        if self.waiting or self.believes is None:
            return
        if self.term is None:
            self.begin(self.believes)
            return
        if self.applied <= self.term.position:  # the barrier: a term lives only once its own view shows it
            return
        if "read own writes" in self.world.guards and self.applied <= self.own:
            return
        if view.term is not None and view.term.order > self.term.order:
            self.crash()
            return
        self.act(view, self.term)

    def act(self, view: PartitionView, term: Term) -> None:
        world, build, rnd = self.world, self.world.build, self.world.rnd
        facts = self.follower.facts()
        victims = self.victims(view, facts, term)
        going = in_state(view, SegmentState.DELETE_SEGMENT_STARTED)
        gone = in_state(view, SegmentState.DELETE_SEGMENT_FINISHED)
        acts: list[Callable[[], None]] = [self.copy]
        if victims:
            victim = rnd.choice(victims)
            acts.append(lambda: self.send(lambda at: build.delete_started(at, victim, term)))
        if going:
            acts += [lambda: self.delete_objects(rnd.choice(going), term)] * 2
        if gone:
            acts += [lambda: self.erase_segment(rnd.choice(gone), facts)] * 3
        earlier = [f.key for f in facts if isinstance(f.fact, LeaderElected) and f.position < term.position]
        if earlier:
            acts.append(lambda: self.erase_leader(rnd.choice(earlier), view, facts, term))
        void = [f.key for f in facts if self.may_be_erased(f, view)]
        if void:
            acts.append(lambda: self.send(rnd.choice(void)))
        counter, ahead = world.fresh(), (view.log_start or 0) + 1
        acts.append(lambda: self.send(lambda at: build.log_start(at, term, ahead, counter)))
        rnd.choice(acts)()

    def copy(self) -> None:
        world, term = self.world, self.term
        if term is None:
            return
        if self.upload is None:
            number = world.fresh()

            def begun(position: int) -> None:
                self.upload = number, 0

            self.send(lambda at: world.build.started(at, number, term, number * 10, number * 10 + 9), begun)
            return
        number, done = self.upload
        if done == 2:
            self.upload = None
            self.send(lambda at: world.build.finished(at, number, term, number * 10, number * 10 + 9))
            return
        if world.objects.get(number) == "gone":
            world.written_after_sweep.add(number)
        world.objects[number] = "complete" if done == 1 else "partial"
        self.upload = number, done + 1

    def victims(self, view: PartitionView, facts: list[LiveFact], term: Term) -> list[int]:
        """Return segments to delete: readable ones expire, abandoned ones are swept, a possibly running copy stays."""
        states = [SegmentState.COPY_SEGMENT_FINISHED, SegmentState.ABANDONED]
        if "sweep only ended" not in self.world.guards:
            states.append(SegmentState.COPY_SEGMENT_STARTED)
        segments = in_state(view, *states)
        if "sweep only ended" not in self.world.guards:
            return segments
        started = [f.fact.attempt for f in facts if isinstance(f.fact, SegmentCopyStarted)]
        mine = {number_of(attempt.segment_id) for attempt in started if attempt.term == term}
        readable = set(in_state(view, SegmentState.COPY_SEGMENT_FINISHED))
        return [number for number in segments if number in readable or number not in mine]

    def delete_objects(self, number: int, term: Term) -> None:
        self.world.objects[number] = "gone"
        self.send(lambda at: self.world.build.delete_finished(at, number, term))

    def erase_segment(self, number: int, facts: list[LiveFact]) -> None:
        sid = self.world.build.segment_id(number)
        keys = [(key.kind, f.position, f.key) for f in facts if (key := parse_key(f.key)) and key.segment_id == sid]
        self.send(min(keys, key=lambda each: (ERASING_ORDER.index(each[0]), each[1]))[2])

    def erase_leader(self, key: str, view: PartitionView, facts: list[LiveFact], term: Term) -> None:
        left = any(f.key in view.fenced and f.position < term.position for f in facts)
        if not left or "erase fenced first" not in self.world.guards:
            self.send(key)

    def may_be_erased(self, live: LiveFact, view: PartitionView) -> bool:
        """Return whether it may be erased: fenced deletes, old log starts, fenced copies after their segment's end."""
        key = parse_key(live.key)
        if key is None or key.kind not in ("delete-started", "delete-finished", "log-start"):
            return False
        to = getattr(live.fact, "log_start", None)
        return live.key in view.fenced or (to is not None and to < (view.log_start or 0))


def violation(world: World) -> str | None:
    """Return how the live set and the whole history differ, or how either differs from the objects."""
    live = meaning(world.build.partition, world.live.values())
    full = world.history.view()
    gone = set(in_state(full, SegmentState.DELETE_SEGMENT_FINISHED))
    for state in (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED, SegmentState.ABANDONED):
        by_live, by_full = set(in_state(live, state)), set(in_state(full, state))
        if state is SegmentState.ABANDONED:  # a zombie's late copy of what is deleted is swept once more
            by_live -= gone
        if by_live != by_full:
            return f"{state}: {by_live} in the live set, {by_full} in the history"
    if not set(in_state(live, SegmentState.DELETE_SEGMENT_FINISHED)) <= gone:
        return "deleted in the live set only"
    if (live.log_start, live.term) != (full.log_start, full.term):
        return f"log start and term {live.log_start} {live.term}, in the history {full.log_start} {full.term}"
    if live.contradictions:
        return f"a legal history contradicts itself: {live.contradictions}"
    return objects_violation(world, live)


def objects_violation(world: World, live: PartitionView) -> str | None:
    for number in in_state(live, SegmentState.COPY_SEGMENT_FINISHED):
        if world.objects.get(number) != "complete":
            return f"readable {number}, but its objects are {world.objects.get(number)}"
    named = {number_of(sid) for sid in live.segments} | world.written_after_sweep
    for number, objects in world.objects.items():
        if objects != "gone" and number not in named:
            return f"objects of {number} are named by no live fact"
    return None


def history(build: Build, seed: int, guards: frozenset[str] = GUARDS, steps: int = 160) -> str | None:
    """Run one history; return its failure, if there is any."""
    rnd = random.Random(seed)
    world = World(build, rnd, guards)
    agents = [Agent(world) for _ in range(3)]
    for _ in range(steps):
        chance = rnd.random()
        if chance < 0.05 or world.leader is None:
            if world.leader is None or rnd.random() < 0.8:
                world.epoch += 1
            world.leader = rnd.choice(agents)
            world.leader.crash(believes=world.epoch)
        elif chance < 0.08:
            agent = rnd.choice(agents)
            agent.crash(believes=world.epoch if agent is world.leader else None)
        elif chance < 0.40 and world.flight:
            if delivered(world) and (bad := violation(world)):
                return bad
        else:
            rnd.choice([*agents, world.leader, world.leader, world.leader]).step()
    return None


def delivered(world: World) -> bool:
    """Deliver an append, mostly in order and acknowledged; sometimes late, lost, or landed with its outcome unknown."""
    rnd = world.rnd
    at = 0 if rnd.random() < 0.75 else rnd.randrange(len(world.flight))
    append, fate = world.flight[at], rnd.random()
    if fate >= 0.85:
        append.agent.unknown(append)  # timed out; may land later
        return False
    world.flight.pop(at)
    if fate >= 0.75:
        append.agent.unknown(append)
        return False
    position = world.land(append.what)
    if rnd.random() < 0.9:
        append.agent.acknowledged(append, position)
    else:
        append.agent.unknown(append)
    return True


@pytest.mark.parametrize("block", few(range(20), [0]))
def test_erasing_never_changes_what_the_rest_means(block: int, build: Build) -> None:
    for seed in range(block * 100, block * 100 + 100):
        assert history(build, seed) is None, f"seed {seed}"


@pytest.mark.parametrize(
    ("guard", "seed"),
    [("erase fenced first", 62), ("new term on unknown", 2822), ("sweep only ended", 204), ("read own writes", 54)],
)
def test_without_one_guard_a_history_goes_wrong(guard: str, seed: int, build: Build) -> None:
    # The seeds were found by trying; when the agents here change, try again from 0 (a few thousand are enough).
    assert history(build, seed) is None
    assert history(build, seed, GUARDS - {guard}) is not None
