"""A topic is deleted, under a copy or with the agent down, and re-created with its name at once.

Objects and facts of the old one are deleted; those of the new one begin at offset 0, and none of them is touched.
"""

from __future__ import annotations

import pytest

from tests.scenarios.outages import HOUR_S, PassingClock
from tests.scenarios.story import Effect, Story, observes
from tierstate.state.epochs import TERMINAL_EPOCH
from tierstate.state.facts import LeaderElected, PartitionDeleted
from tierstate.state.ids import TopicIdPartition
from tierstate.state.segment import SegmentState

pytestmark = pytest.mark.kafka

STEPS = ["append copy-started", "put log", "put indexes", "put manifest", "append copy-finished"]


@pytest.fixture
def told(story: Story, clock: PassingClock) -> Story:
    """A story whose clock passes hours at once."""
    story.cluster.given_clock = clock
    return story


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


def re_created(story: Story, short: str) -> TopicIdPartition:
    """Delete the topic and create it again under its name, with other values. Return the old one."""
    given, when, _ = story
    old = story.eyes.place(story.topic(short), 0)
    count = story.topic(short).count
    when.topic_is_deleted(short)
    given.topic(short, per_segment=10)
    story.topic(short).count = count + 1_000
    assert story.eyes.place(story.topic(short), 0).topic_id != old.topic_id
    return old


def objects_of(story: Story, place: TopicIdPartition) -> list[str]:
    return [each.key for each in story.cluster.store.list("") if str(place.topic_id) in each.key]


def nothing_is_left_of(story: Story, place: TopicIdPartition) -> None:
    """Require that only the facts that ended it are left: those two stay for ever and fence any write of a zombie."""
    eyes = story.eyes
    eyes.follower.require_fresh(eyes.follower.tier_partition(place), 0)
    assert objects_of(story, place) == []
    elected, deleted = (live.fact for live in eyes.follower.facts(place))
    assert isinstance(elected, LeaderElected)
    assert isinstance(deleted, PartitionDeleted)
    assert (elected.epoch, elected.id) == (TERMINAL_EPOCH, deleted.term.id)


def custodians_end(story: Story, clock: PassingClock) -> None:
    """Let custodians process a missing topic: declare it, end it after the grace, and clear it."""
    for _ in range(3):
        clock.passes(HOUR_S)
        story.when.agent(0).looks_after_lost_topics()


@pytest.mark.parametrize("step", STEPS)
@observes(Effect.AGENT_STOPPED, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_topic_that_is_deleted_and_re_created_under_a_copy_takes_nothing_along(
    told: Story, clock: PassingClock, step: str
) -> None:
    given, when, then = told
    given.topic("orders", per_segment=10).with_segments(3)
    agent = when.agent(0).stops_before(step, nth=2)
    old = re_created(told, "orders")
    when.produces("orders", 21)
    then.reader("orders").reads_from(0, total=21, remote=0)
    agent.resumes().works()
    then.remote("orders").has_segments_from(0, 10).holds(0, 19)
    then.local("orders").starts_at(20)
    then.log("orders").starts_at(0)
    then.reader("orders").reads_from(0, total=21, remote=20)
    assert objects_of(told, old), "the first copy's: only the custodian may know that nobody wants them any more"
    new = then.remote("orders").objects()

    custodians_end(told, clock)
    nothing_is_left_of(told, old)
    assert then.remote("orders").objects() == new
    view = then.remote("orders").view
    assert {each.state for each in view.segments.values()} == {SegmentState.COPY_SEGMENT_FINISHED}
    then.reader("orders").reads_from(0, total=21, remote=20)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_topic_that_is_deleted_and_re_created_with_the_agent_down_takes_nothing_along(
    told: Story, clock: PassingClock
) -> None:
    given, when, then = told
    given.topic("orders", per_segment=10).with_segments(3)
    when.agent(0).works()
    when.agent_dies(0)
    old = re_created(told, "orders")
    when.produces("orders", 21)
    then.reader("orders").reads_from(0, total=21, remote=0)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 10).holds(0, 19)
    then.local("orders").starts_at(20)
    assert len(objects_of(told, old)) == 9
    custodians_end(told, clock)
    nothing_is_left_of(told, old)
    then.reader("orders").reads_from(0, total=21, remote=20)


@observes(Effect.COPIED, Effect.AGENT_STOPPED)
def test_a_topic_that_is_deleted_for_good_under_a_copy_leaves_nothing(told: Story, clock: PassingClock) -> None:
    given, when, _ = told
    given.topic("orders", per_segment=10).with_segments(3)
    agent = when.agent(0).stops_before("put manifest", nth=2)
    old = told.eyes.place(told.topic("orders"), 0)
    when.topic_is_deleted("orders")
    agent.resumes().works()
    assert objects_of(told, old)
    custodians_end(told, clock)
    nothing_is_left_of(told, old)
