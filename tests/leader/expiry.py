"""An agent that only expires: it takes the steps that the rules ask for, and checks what must hold at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.leader.world import Process, World, object_keys, run_with
from tierstate.leader.expirer import advance_log_start, delete_records_order, remove_objects, start_delete
from tierstate.leader.term import TermSession
from tierstate.rules.expire import (
    AdvanceLogStart,
    RemoveObjects,
    StartDelete,
    next_delete,
    next_log_start,
    next_removal,
)
from tierstate.rules.orders import CutLocal, next_cut
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import Lineage
from tierstate.state.errors import BrokerUnavailable, Fenced
from tierstate.state.facts import Fact, IntegrityHold, OperatorOrder, OrderKind, ReaderLease, SegmentDeleteStarted
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.lineage import below
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.retention import TopicRetention
from tierstate.state.segment import RemoteSegment, SegmentState

FOREVER = TopicRetention(-1, -1, -1, -1)
GRACE_MS = 60_000


@dataclass
class Expiry:
    """The expiry of one process under one retention."""

    process: Process
    session: TermSession
    retention: TopicRetention = FOREVER
    steps: list[str] = field(default_factory=list)

    @property
    def world(self) -> World:
        return self.process.world

    def next_act(self) -> Operation[object] | None:
        """Return the act that a worker would decide on a fresh view; None when there is nothing to do now."""
        session, process, store = self.session, self.process, self.world.store
        view, bounds, now = session.view(max_age=0), session.bounds(), session.now()
        segments = self.world.log.snapshot(session.partition, session.name).segments
        move = next_log_start(view, bounds, segments, self.retention, now)
        if isinstance(move, AdvanceLogStart):
            return advance_log_start(session, move.log_start, move.reason, process.events.append)
        delete = next_delete(view)
        if isinstance(delete, StartDelete):
            return start_delete(session, delete.segment, delete.reason, process.events.append)
        cut = next_cut(view, bounds)
        if isinstance(cut, CutLocal):
            return delete_records_order(session, cut.before, process.events.append)
        removal = next_removal(view, now, GRACE_MS)
        if isinstance(removal, RemoveObjects):
            return remove_objects(session, store, removal.segment, GRACE_MS, process.events.append)
        return None

    def all_steps(self) -> Iterator[str]:
        """Yield every step before it is taken, and wait for graces."""
        waited = False
        while True:
            act = self.next_act()
            if act is None and waited:
                return
            waited = act is None
            if act is None:
                self.world.clock.advance(GRACE_MS / 1000)
                continue
            for step in act:
                self.steps.append(step)
                yield step

    def work(self) -> None:
        """Take all steps until nothing is left to do, and wait for graces."""
        for _ in self.all_steps():
            pass

    def once(self) -> bool:
        """Do only what can be done now; return whether that was anything."""
        done = False
        while (act := self.next_act()) is not None:
            run(act)
            done = True
        return done


def by_size(world: World, kept: int) -> TopicRetention:
    """Return a retention by size that keeps the newest ``kept`` of the copied segments, and what is not rolled."""
    view = world.view()
    newest = sum(segment.log_bytes for segment in view.readable[len(view.readable) - kept :])
    return TopicRetention(-1, newest + world.file(world.bases[-1]).stat().st_size, -1, -1)


def check_expiry(world: World) -> PartitionView:
    """Check the world's promises, that deleted segments lie below the log start, and that their objects are gone."""
    view = world.check_promises()
    objects = world.objects()
    for segment in view.segments.values():
        if not isinstance(segment.remote, RemoteSegment):
            continue
        if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
            assert segment.remote.offsets.end < (view.log_start or 0)
        if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
            assert objects.isdisjoint(object_keys(segment.remote))
    return view


def say(world: World, fact: Fact) -> None:
    world.topic.append(0, key_of(fact), encode_fact(fact))


def say_lease(world: World, start: int, end: int, seconds: float = 3600.0) -> None:
    expires = TimestampMs(round(world.clock.now_ms() + seconds * 1000))
    offsets = OffsetRange(Offset(start), Offset(end))
    say(world, ReaderLease(world.partition, FactId.of(b"l" * 16), offsets, "spark", expires))


def say_order(
    world: World,
    kind: OrderKind,
    before: int | None = None,
    *,
    force: bool = False,
    number: int = 1,
    lineage: Lineage | None = None,
) -> OperatorOrder:
    """Append an order. ``lineage``: for another log than the one in force."""
    offset = None if before is None else Offset(before)
    identity = FactId.of(number.to_bytes(16, "big"))
    epochs = below(lineage or world.view().lineage, offset) if offset is not None else Lineage()
    order = OperatorOrder(world.partition, identity, kind, offset, force, "ops", world.clock.now_ms(), epochs)
    say(world, order)
    return order


def say_hold(world: World) -> None:
    identity = FactId.of(b"h" * 16)
    say(world, IntegrityHold(world.partition, identity, BrokerId(2), "two values", "a", "b", world.clock.now_ms()))


def reasons(world: World) -> list[str]:
    """Return the reason of every accepted delete-started, by offset."""
    view = world.view()
    facts_found = [
        (segment.deleting.fact.subject.offsets.start, segment.deleting.fact.reason.value)
        for segment in view.segments.values()
        if segment.deleting is not None and isinstance(segment.deleting.fact, SegmentDeleteStarted)
    ]
    return [reason for _, reason in sorted(facts_found)]


def two_are_gone(world: World) -> None:
    view = check_expiry(world)
    assert view.log_start == world.bases[2]
    assert [segment.offsets.start for segment in view.readable] == world.rolled[2:]
    assert len(world.objects()) == 9
    gone = [each for each in view.segments.values() if each.state is not SegmentState.COPY_SEGMENT_FINISHED]
    assert {each.state for each in gone if each.remote} == {SegmentState.DELETE_SEGMENT_FINISHED}


def finish(world: World, retention: TopicRetention) -> None:
    """Let another process, in a term of its own, expire what there is to expire."""
    process = world.process()
    Expiry(process, process.begin(), retention).work()


def unchanged(world: World, act: Operation[Any], step: str, happen: Callable[[], object]) -> None:
    """Check that what happens right before the step raises Fenced, and that the step is not taken."""
    objects, start = world.objects(), world.local_start()
    log_start, states = world.view().log_start, world.states()
    with pytest.raises((Fenced, BrokerUnavailable)):
        run_with(act, step, happen)
    assert (world.objects(), world.local_start()) == (objects, start)
    assert (world.view().log_start, world.states()) == (log_start, states)
