"""A custodian that dies before any step of any operation: another process finishes, and deletes nothing too early.

The steps are taken from the operations themselves, so a new step is a new test.
"""

from __future__ import annotations

import pytest

from tests.leader.custody_world import GRACE_MS, Ward
from tests.leader.world import World
from tests.sampled import sampled
from tierstate.rules.custody import ending, is_over, withdrawable
from tierstate.state.epochs import TERMINAL_EPOCH
from tierstate.state.errors import UnknownOutcome
from tierstate.state.facts import LeaderElected, PartitionDeleted
from tierstate.state.segment import SegmentState

DELETES = ("append delete-started", "delete objects", "append delete-finished")


@pytest.fixture
def ward(world: World) -> Ward:
    """Two segments are copied, and the topic is deleted."""
    return gone(world)


def gone(world: World) -> Ward:
    process = world.process()
    session = process.begin()
    for _ in range(2):
        process.copy_next(session)
    world.broker.delete_topic(world.name)
    return Ward(world)


def all_steps(ward: Ward) -> list[str]:
    """Return the steps of a whole life, from the first look to the last tombstone."""
    taken: list[str] = []
    for wait in (0, GRACE_MS, 60_000):
        ward.wait(wait)
        before = -1
        while before != len(taken):
            before = len(taken)
            taken.extend(ward.custodian.steps())
    return taken


def check(ward: Ward, began: int) -> None:
    """Check what must hold at any time, whatever crashed."""
    view, objects = ward.view(), ward.objects()
    assert not view.contradictions
    assert not view.degraded
    whole = {each.object_key for each in view.readable}
    assert all(f"{key}.rsm-manifest" in objects for key in whole), "readable without its objects"
    named = {each.subject.object_key for each in view.segments.values() if each.subject}
    assert {key.rsplit(".", 1)[0] for key in objects} <= named, "objects that no fact names"
    if ward.now < began + GRACE_MS:
        assert len(view.readable) == 2, "deleted before the grace was over"
        assert ending(view) is None


def finish(ward: Ward) -> None:
    """Let another process work until only the facts that ended the partition are left."""
    ward.process()
    for _ in range(3):
        ward.wait(600_000)
        ward.work()
    ward.wait(GRACE_MS)
    ward.work_on()
    over(ward)


def over(ward: Ward) -> None:
    """Check that only terms are left that fence any late write."""
    assert ward.objects() == set()
    assert {type(live.fact) for live in ward.facts()} == {LeaderElected, PartitionDeleted}
    assert {fact.epoch for fact in ward.values(LeaderElected)} == {TERMINAL_EPOCH}
    assert is_over(ward.view())


def test_the_steps_of_a_whole_life_are_the_ones_that_are_tried(ward: Ward) -> None:
    taken = all_steps(ward)
    over(ward)
    assert taken[:3] == ["append partition-missing", "append leader-elected", "append partition-deleted"]
    assert [step for step in taken if step in DELETES] == [*DELETES[:1] * 2, *DELETES[1:] * 2]
    assert taken[-4:] == ["append tombstone"] * 4
    assert len(taken) == LIFE


LIFE = 20
"""The number of those steps."""


@pytest.mark.parametrize("at", sampled(range(LIFE), 3))
def test_a_process_that_dies_before_a_step_leaves_what_another_one_finishes(at: int, ward: Ward) -> None:
    began = ward.now
    taken = 0
    for wait in (0, GRACE_MS, 60_000):
        ward.wait(wait)
        before = -1
        while before != taken:
            before = taken
            for _ in ward.custodian.steps():
                if taken == at:
                    check(ward, began)
                    finish(ward)
                    return
                taken += 1
    raise AssertionError("the life was shorter")


@pytest.mark.parametrize("at", sampled(range(LIFE), 3))
def test_a_topic_that_answers_again_loses_nothing_once_a_process_died(at: int, ward: Ward) -> None:
    """Before the end all is as if nothing had happened; after it nothing more is deleted."""
    taken = 0
    for wait in (0, GRACE_MS, 60_000):
        ward.wait(wait)
        before = -1
        while before != taken:
            before = taken
            for _ in ward.custodian.steps():
                if taken == at:
                    come_back(ward)
                    return
                taken += 1


def come_back(ward: Ward) -> None:
    ended, objects = ending(ward.view()) is not None, ward.objects()
    facts = [live.key for live in ward.facts()]
    ward.world.broker.restore_topic(ward.world.name, ward.world.topic_id)
    ward.process()
    ward.work_on()
    assert ward.objects() == objects
    if ended:
        assert [live.key for live in ward.facts()] == facts
    else:
        assert withdrawable(ward.view()) == ()


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("at", sampled(range(LIFE), 3))
def test_an_append_of_unknown_outcome_anywhere_is_got_over(at: int, landed: bool, ward: Ward) -> None:
    began, topic = ward.now, ward.world.topic
    first = topic.appends

    def lose(number: int, key: str) -> None:
        if number == first + at:
            raise UnknownOutcome("the network", key=key)

    if landed:
        topic.after_append = lose
    else:
        topic.on_append = lose
    ward.work()
    check(ward, began)
    ward.wait(1000)
    ward.work()
    check(ward, began)
    ward.wait(GRACE_MS)
    for _ in range(4):
        ward.work_on()
        check(ward, began)
    assert ward.objects() == set()
    assert SegmentState.COPY_SEGMENT_FINISHED not in ward.world.states()
    ward.wait(GRACE_MS)
    ward.work_on()
    over(ward)
