"""A process that dies before any step of any operation: the next term goes on, and nothing was lost or shown too early.

The steps are taken from the operations themselves, so a new step is a new test.
"""

from __future__ import annotations

import pytest

from tests.leader.world import Process, World, nobody_reads
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.term import begin_term
from tierstate.leader.trimmer import trim_local
from tierstate.rules.reasons import Reason
from tierstate.runtime.operation import run
from tierstate.state.errors import StorageFull
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState

COPY_STEPS = ["append copy-started", "put log", "put indexes", "put manifest", "append copy-finished"]
FAILED_COPY_STEPS = [
    "append copy-started",
    "put log",
    "put indexes",
    "put manifest",
    "delete own objects",
    "append delete-started",
    "append delete-finished",
]
TERM_STEPS = ["append leader-elected", "append log-start"]
TRIM_STEPS = ["append trim-intended", "delete-records"]


def finish(world: World) -> None:
    """Let another process do all that is left; the promises hold, and no local data is left to trim."""
    process = world.process()
    process.work()
    view = world.check_promises()
    assert view.coverage.prefix_end(view.log_start or 0) == world.bases[-1] - 1
    assert world.local_start() == world.bases[-1]
    assert process.status().not_copied_reason == Reason.ALL_COPIED


def test_the_steps_are_the_ones_that_are_tried(world: World) -> None:
    process = world.process()
    assert list(begin_term(process.context, world.partition, world.name)) == TERM_STEPS
    session = process.begin()
    assert list(copy_segment(session, process.candidate(session), process.tools)) == COPY_STEPS
    before = Offset(world.bases[1])
    assert (
        list(trim_local(session, ObjectProof(world.store), before, process.events.append, nobody_reads)) == TRIM_STEPS
    )


@pytest.mark.parametrize("step", range(len(TERM_STEPS)))
def test_a_process_that_dies_before_a_step_of_begin_term(step: int, world: World) -> None:
    process = world.process()
    taken = run_until(begin_term(process.context, world.partition, world.name), step)
    assert taken == TERM_STEPS[:step]
    world.check_promises()
    finish(world)


@pytest.mark.parametrize("step", range(len(COPY_STEPS)))
def test_a_process_that_dies_before_a_step_of_copy_segment(step: int, world: World) -> None:
    process = world.process()
    session = process.begin()
    process.copy_next(session)
    taken = run_until(copy_segment(session, process.candidate(session), process.tools), step)
    assert taken == COPY_STEPS[:step]
    view = world.check_promises()
    assert [segment.offsets.start for segment in view.readable] == world.rolled[:1]
    dead = [each for each in view.segments.values() if each.state is not SegmentState.COPY_SEGMENT_FINISHED]
    finish(world)
    assert len(dead) == (1 if step else 0)
    for each in dead:
        assert world.view().segments[each.segment_id].state is SegmentState.ABANDONED


@pytest.mark.parametrize("step", range(1, len(FAILED_COPY_STEPS)))
def test_a_process_that_dies_while_it_cleans_up_a_failed_copy(step: int, world: World) -> None:
    def full(operation: str, key: str, writes: int) -> None:
        if operation == "put" and key.endswith(".rsm-manifest"):
            raise StorageFull("no room", key=key)

    process = world.process()
    session = process.begin()
    world.faults = full
    taken = run_until(copy_segment(session, process.candidate(session), process.tools), step)
    assert taken == FAILED_COPY_STEPS[:step]
    assert not world.check_promises().readable
    world.faults = lambda operation, key, writes: None
    finish(world)
    dead = [s.state for s in world.view().segments.values() if s.state is not SegmentState.COPY_SEGMENT_FINISHED]
    # a fact names the objects that may be left, by which they can be swept
    deleting = FAILED_COPY_STEPS[step] == "append delete-finished"
    assert dead == [SegmentState.DELETE_SEGMENT_STARTED if deleting else SegmentState.ABANDONED]


@pytest.mark.parametrize("step", range(len(TRIM_STEPS)))
def test_a_process_that_dies_before_a_step_of_trim_local(step: int, world: World) -> None:
    process = world.process()
    session = process.copy_all()
    act = trim_local(session, ObjectProof(world.store), Offset(world.bases[2]), process.events.append, nobody_reads)
    assert run_until(act, step) == TRIM_STEPS[:step]
    assert world.local_start() == 0
    assert world.check_promises().trim_intended == (None if step == 0 else world.bases[2])
    finish(world)


@pytest.mark.parametrize("copied", range(6))
def test_nothing_is_trimmed_beyond_what_is_copied(copied: int, world: World) -> None:
    process = world.process()
    session = process.begin()
    for _ in range(copied):
        process.copy_next(session)
    for before in world.bases[copied + 1 :]:
        with pytest.raises(Exception, match="replaces the local data"):
            run(trim_local(session, ObjectProof(world.store), Offset(before), process.events.append, nobody_reads))
    assert world.local_start() == 0


def test_a_new_life_after_every_single_step_gets_through(world: World) -> None:
    """The agent dies before every step in turn, from the very first to the last of the whole job."""
    died = 0
    for step in range(60):
        process = world.process()
        if not dies_at(process, step):
            break
        died += 1
        world.check_promises()
    assert died == 10
    assert world.local_start() == world.bases[-1]


def dies_at(process: Process, step: int) -> bool:
    """Return whether the process could die before its ``step``-th step; it takes at most so many of its steps."""
    world, left = process.world, step
    session_steps = begin_term(process.context, world.partition, world.name)
    session = None
    while True:
        try:
            next(session_steps)
        except StopIteration as done:
            session = done.value
            break
        if left == 0:
            return True
        left -= 1
    while world.view().coverage.prefix_end(world.local_start()) < world.bases[-1] - 1:
        taken = run_until(copy_segment(session, process.candidate(session), process.tools), left)
        if len(taken) == left and taken[-1:] != ["append copy-finished"]:
            return True
        left -= len(taken)
    if world.local_start() == world.bases[-1]:
        return False
    act = trim_local(session, ObjectProof(world.store), Offset(world.bases[-1]), process.events.append, nobody_reads)
    taken = run_until(act, left)
    return world.local_start() < world.bases[-1]
