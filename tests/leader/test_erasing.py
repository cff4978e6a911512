"""Erasing in its order, whatever happens between two tombstones: crashes, zombies, lost answers, holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.leader.expiry import FOREVER, Expiry, say, say_hold, say_lease, say_order
from tests.leader.world import Process, World, nobody_reads, run_with
from tests.operations import run_until
from tests.sampled import sampled
from tierstate.leader.copier import copy_segment
from tierstate.leader.expirer import erase
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.term import TermSession
from tierstate.leader.trimmer import trim_local
from tierstate.rules.decide import standing_order
from tierstate.rules.erase import Erase, next_erasure
from tierstate.rules.leases import CLOCK_TOLERANCE_MS
from tierstate.runtime.listener import FactsErased
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import Fenced, UnknownOutcome
from tierstate.state.facts import (
    DeleteReason,
    LocalTrimIntended,
    LogStartAdvanced,
    OrderKind,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import SegmentState

STEP = "append tombstone"
TOMBSTONES = 25
"""The number in a world in which two of five segments are deleted, and an attempt was never finished."""


@dataclass
class Erasing:
    """One process that only erases."""

    process: Process
    session: TermSession

    def decision(self) -> Erase | str:
        session = self.session
        view, bounds = session.view(max_age=0), session.bounds()
        return next_erasure(view, session.term, bounds.local_start, None, session.now())

    def next_act(self) -> Operation[None] | None:
        verdict = self.decision()
        return erase(self.session, verdict, self.process.events.append) if isinstance(verdict, Erase) else None

    def all_steps(self) -> Iterator[str]:
        """Yield every step before it is taken."""
        while (act := self.next_act()) is not None:
            yield from act

    def work(self) -> None:
        for _ in self.all_steps():
            pass


def new_erasing(world: World) -> Erasing:
    process = world.process()
    return Erasing(process, process.begin())


def told(world: World) -> tuple[object, ...]:
    """Check that erasing left the meaning as it is. Deleted segments may vanish, and their objects are deleted."""
    view = world.view()
    assert not view.contradictions
    standing = {each.segment_id: each.state for each in view.segments.values()}
    gone = [sid for sid, state in standing.items() if state is SegmentState.DELETE_SEGMENT_FINISHED]
    standing = {sid: state for sid, state in standing.items() if sid not in gone}
    return view.readable, view.coverage.owned, view.log_start, view.trim_intended, standing, standing_order(view)


def left(view: PartitionView) -> list[str]:
    """Return the kinds of the facts that are left, sorted."""
    facts = [*view.others, *(live for each in view.segments.values() for live in each.facts)]
    return sorted(type(live.fact).__name__ for live in facts)


def clutter(world: World, deleted: int) -> Erasing:
    """Three ended terms, with all that they leave behind, and a fourth that has nothing else to do.

    The first copies and trims, and an attempt of its dies; the second deletes the ``deleted`` oldest segments and the
    attempts, while the first, a zombie by now, deletes, trims and moves the log start too. Orders are done or
    superseded, a lease is over.
    """
    first = world.process()
    session = first.begin()
    run_until(copy_segment(session, first.candidate(session), first.tools), 2)  # dies
    second = world.process()
    session = second.copy_all()
    for at in (1, 2):
        run(trim_local(session, ObjectProof(world.store), Offset(world.bases[at]), second.events.append, nobody_reads))
    zombie = session
    third = world.process()
    session = third.begin()
    doomed = world.view().readable[0]
    for fact in (
        SegmentDeleteStarted(doomed, zombie.term, 90, DeleteReason.LOG_START, zombie.now()),
        SegmentDeleteFinished(doomed, zombie.term, 91, zombie.now()),
        SegmentDeleteFinished(world.view().readable[-1], zombie.term, 92, zombie.now()),
        LocalTrimIntended(world.partition, Offset(world.bases[4]), zombie.term, 93, zombie.now()),
        LogStartAdvanced(world.partition, Offset(world.bases[4]), zombie.term, 94, "retention-time", zombie.now()),
    ):
        say(world, fact)
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[deleted], number=1)
    say_order(world, OrderKind.PAUSE, number=2)
    say_order(world, OrderKind.RESUME, number=3)
    Expiry(third, session, FOREVER).work()
    sweep(world, third, session)
    say_lease(world, 0, 9, seconds=60)
    world.clock.advance(61 + CLOCK_TOLERANCE_MS / 1000)
    world.check_promises()
    return new_erasing(world)


def sweep(world: World, process: Process, session: TermSession) -> None:
    """Sweep without the grace of a day, and without its checks."""
    for segment in world.view().in_state(SegmentState.ABANDONED):
        assert segment.subject is not None
        session.append(SegmentDeleteStarted(segment.subject, session.term, 50, DeleteReason.ABANDONED, session.now()))
        for key in world.objects():
            if key.startswith(segment.subject.object_key):
                world.store.delete(key)
        session.append(SegmentDeleteFinished(segment.subject, session.term, 51, session.now()))


@pytest.fixture
def erasing(world: World) -> Erasing:
    """Two of five segments are deleted."""
    return clutter(world, deleted=2)


def test_every_tombstone_leaves_the_partition_as_it_was(erasing: Erasing, world: World) -> None:
    before, steps = told(world), 0
    for step in erasing.all_steps():
        assert step == STEP
        assert told(world) == before
        steps += 1
    assert steps == TOMBSTONES
    assert told(world) == before
    assert erasing.decision() == "nothing to erase"


def test_only_facts_in_force_and_readable_segments_are_left(erasing: Erasing, world: World) -> None:
    erasing.work()
    view = world.view()
    in_force = ["LeaderElected", "LocalTrimIntended", "LogStartAdvanced"]
    assert left(view) == in_force + ["SegmentCopyFinished"] * 3 + ["SegmentCopyStarted"] * 3
    assert view.term == erasing.session.term
    assert [segment.offsets.start for segment in view.readable] == world.rolled[2:]


def test_nothing_but_what_is_in_force_stands_once_everything_is_deleted(world: World) -> None:
    erasing = clutter(world, deleted=5)
    before = world.view()
    erasing.work()
    view = world.check_promises()
    assert left(view) == ["LeaderElected", "LocalTrimIntended", "LogStartAdvanced"]
    assert (view.term, view.log_start, view.trim_intended) == (
        erasing.session.term,
        world.bases[5],
        before.trim_intended,
    )
    assert view.segments == {}
    assert world.objects() == set()


def test_a_new_segment_can_be_copied_and_read_after_everything_was_erased(world: World) -> None:
    erasing = clutter(world, deleted=5)
    erasing.work()
    world.roll()
    segment = erasing.process.copy_next(erasing.session)
    assert world.check_promises().readable == (segment,)


def test_each_key_is_erased_once_and_reported(erasing: Erasing, world: World) -> None:
    assert tombstones(world) == []
    erasing.work()
    erased = tombstones(world)
    assert len(erased) == len(set(erased)) == TOMBSTONES
    events = [event for event in erasing.process.events if isinstance(event, FactsErased)]
    assert sum(event.facts for event in events) == TOMBSTONES
    assert {event.why.split()[0] for event in events} == {"segment", "fenced", "expired", "order", "lower"}
    assert {(event.partition, event.topic) for event in events} == {(world.partition, world.name)}


def tombstones(world: World) -> list[str]:
    """Return the keys of the tombstones in the topic, in order."""
    batches = world.topic.reader({0: Position(0)}).poll(0)
    return [entry.key for batch in batches for entry in batch.entries if entry.value is None]


@pytest.mark.parametrize("step", sampled(range(TOMBSTONES), 8))
def test_a_process_that_dies_before_any_tombstone_is_finished_by_the_next(
    step: int, erasing: Erasing, world: World
) -> None:
    before = told(world)
    for at, _ in enumerate(erasing.all_steps()):
        if at == step:
            break
    else:
        raise AssertionError("there are fewer steps")
    assert len(tombstones(world)) == step
    other = new_erasing(world)
    for _ in other.all_steps():
        assert told(world) == before
    assert told(world) == before
    assert left(world.view()).count("LeaderElected") == 1
    assert len(world.view().segments) == 3
    erased = tombstones(world)
    assert len(erased) == len(set(erased)) == TOMBSTONES + 1  # and the term that died


@pytest.mark.parametrize("higher_epoch", [False, True])
@pytest.mark.parametrize("step", range(0, TOMBSTONES, 6))
def test_a_zombie_that_is_fenced_before_a_tombstone_sends_none(
    step: int, higher_epoch: bool, erasing: Erasing, world: World
) -> None:
    steps = erasing.all_steps()
    for _ in range(step + 1):
        next(steps)
    if higher_epoch:
        world.elect_here()
    other = new_erasing(world)
    end = world.topic.end(0)
    with pytest.raises(Fenced):
        next(steps)
    assert world.topic.end(0) == end
    assert erasing.session.ended
    other.work()
    assert left(world.view()).count("LeaderElected") == 1


@pytest.mark.parametrize(("higher_epoch", "finished"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("step", sampled(range(0, TOMBSTONES, 3), 8))
def test_a_zombies_tombstone_that_lands_in_a_later_term_changes_nothing(
    step: int, higher_epoch: bool, finished: bool, erasing: Erasing, world: World
) -> None:
    """It looked, and was fenced before its tombstone landed; ``finished``: only after the other had erased all."""
    before = told(world)
    others: list[Erasing] = []

    def intrude(number: int, key: str) -> None:
        world.topic.on_append = lambda number, key: None
        if higher_epoch:
            world.elect_here()
        others.append(new_erasing(world))
        if finished:
            others[0].work()

    steps = erasing.all_steps()
    for _ in range(step + 1):
        next(steps)
    world.topic.on_append = intrude
    with pytest.raises(Fenced):
        next(steps)
    assert len(tombstones(world)) > step, "it landed all the same"
    assert told(world) == before
    others[0].work()
    assert told(world) == before
    assert left(world.view()).count("LeaderElected") == 1


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("step", range(0, TOMBSTONES, 6))
def test_the_unknown_outcome_of_a_tombstone_ends_the_term(
    step: int, lands: bool, erasing: Erasing, world: World
) -> None:
    def lose(number: int, key: str) -> None:
        raise UnknownOutcome("no answer")

    before, steps = told(world), erasing.all_steps()
    for _ in range(step + 1):
        next(steps)
    if lands:
        world.topic.after_append = lose
    else:
        world.topic.on_append = lose
    with pytest.raises(UnknownOutcome):
        next(steps)
    world.topic.on_append = world.topic.after_append = lambda number, key: None
    assert erasing.session.ended
    assert len(tombstones(world)) == step + lands
    with pytest.raises(Fenced):
        erasing.next_act()
    new_erasing(world).work()
    assert told(world) == before
    assert left(world.view()).count("LeaderElected") == 1


def test_a_hold_that_lands_between_two_tombstones_stops_the_rest(erasing: Erasing, world: World) -> None:
    act = erasing.next_act()
    assert act is not None
    next(act), next(act)
    say_hold(world)
    end_before = world.topic.end(0)
    with pytest.raises(Fenced, match="held: two values"):
        next(act)
    assert world.topic.end(0) == end_before
    kept = erasing.decision()
    assert isinstance(kept, str)
    assert kept.startswith("held: two values (1 hold")
    hold = next(live.key for live in world.view().others if live.fact in world.view().holds)
    world.topic.append(0, hold, None)
    erasing.work()
    assert len(world.view().segments) == 3


def test_a_hold_that_lands_before_the_first_tombstone_stops_it(erasing: Erasing, world: World) -> None:
    act = erasing.next_act()
    assert act is not None
    with pytest.raises(Fenced):
        run_with(act, STEP, lambda: say_hold(world))
    assert tombstones(world) == []


def test_the_next_tombstone_waits_until_the_own_view_has_the_last(erasing: Erasing, world: World) -> None:
    view = erasing.process.context.view
    for _ in erasing.all_steps():
        assert {live.key for live in view.facts(world.partition)}.isdisjoint(tombstones(world))


def test_the_terms_that_fence_a_zombies_copy_stay_until_it_is_swept(world: World) -> None:
    process, other = world.process(), world.process()
    session = process.begin()

    def intrude(number: int, key: str) -> None:
        if key.endswith("/copy-finished"):
            world.topic.on_append = lambda number, key: None
            other.begin()

    world.topic.on_append = intrude
    with pytest.raises(Fenced):
        process.copy_next(session)
    erasing = new_erasing(world)
    erasing.work()
    assert world.states() == [SegmentState.ABANDONED]
    assert left(world.view()).count("LeaderElected") == 3
    sweep(world, erasing.process, erasing.session)
    erasing.work()
    assert left(world.view()) == ["LeaderElected", "LogStartAdvanced"]


def test_the_term_of_another_branch_stays(world: World) -> None:
    """Its lineage belongs to another branch: the leader that returns from there must find it."""
    process = world.process()
    session = process.begin()
    leader = world.view().leader
    assert leader is not None
    world.write_checkpoint((0, 0), (1, world.bases[2]))
    world.broker.elect(world.name, 0, 1)
    branch = world.process().begin()
    world.write_checkpoint((0, 0), (2, world.bases[1]))
    world.broker.elect(world.name, 0, 1)
    erasing = new_erasing(world)
    erasing.work()
    keys = {live.key for live in world.view().others}
    assert key_of(leader) not in keys, "the one in force has all of its lineage"
    assert left(world.view()).count("LeaderElected") == 2
    assert session.term != branch.term
    assert world.view().term == erasing.session.term
