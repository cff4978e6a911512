"""The tier-state topic is away: no copy, no trim, no delete; reads go on until the view is too old, then they fail.

Two of three brokers are down, so that the cluster cannot elect a leader either; the partition's own leader is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.api.gateways import Call, asgi_call
from tests.leader.real import eventually
from tests.scenarios.outages import HOUR_S, STEP_S, PassingClock
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.story_kafka import Writer
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.leader.observe import PROBLEM_AGE_S
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.errors import ViewBehind
from tierstate.state.facts import OrderKind
from tierstate.state.segment import SegmentState
from tierstate.state.view import READY_AGE_S

pytestmark = pytest.mark.kafka


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


def orders(story: Story, *, segments: int, tiers_led_by: int) -> None:
    """Write a topic of rolled segments on broker 0; one broker leads every partition of the tier-state topic."""
    story.given.topic("orders", per_segment=10, brokers=[0]).with_segments(segments)
    name, count = story.cluster.spec.name, len(story.sandbox.brokers)
    for number in range(story.cluster.spec.partitions):
        story.admin.reassign(name, number, [(tiers_led_by + each) % count for each in range(count)])
        story.admin.leads(name, number, tiers_led_by)


@contextmanager
def only_broker_0(story: Story) -> Iterator[None]:
    """Cut the power of the other brokers. All are in sync again afterwards."""
    _, when, _ = story
    when.broker_is_killed(1).broker_is_killed(2)
    try:
        yield
    finally:
        when.broker_starts(1).broker_starts(2)


@pytest.fixture
def story(story_three: Story, clock: PassingClock) -> Story:
    """A story on the passing clock."""
    story_three.cluster.given_clock = clock
    return story_three


@pytest.fixture
def gateway(story: Story, clock: PassingClock) -> Iterator[Call]:
    service = FetchService(story.eyes.reader, Gateway(), clock)
    yield asgi_call(create_app(service))
    service.close()


@pytest.mark.slow
@observes(Effect.COPIED, Effect.TRIMMED, Effect.DELETED, Effect.LOCAL_READ, Effect.REMOTE_READ, Effect.BROKER_DOWN)
def test_without_its_leader_nothing_is_done_and_reads_go_on_until_the_view_is_too_old(
    story: Story, clock: PassingClock, request: pytest.FixtureRequest
) -> None:
    _, when, then = story
    orders(story, segments=3, tiers_led_by=1)
    agent, topic = when.agent(0).works(), story.topic("orders")
    then.local("orders").starts_at(30)
    gateway: Call = request.getfixturevalue("gateway")
    records = f"/v1/topics/{topic.name}/partitions/0/records"
    writer = Writer(story.sandbox).writes(topic, 10)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=10)
    then.remote("orders").has_segments_from(0, 10, 20)  # now it has to copy, to trim and to delete
    objects, seen = then.remote("orders").objects(), story.effects()

    with only_broker_0(story):
        writer.writes(topic, 10)
        for _ in range(2):
            clock.passes(STEP_S)
            agent.turn()
        assert then.remote("orders").objects() == objects
        then.local("orders").starts_at(30)
        status = agent.job.leader.board.all()[0]
        assert status.last_error is not None
        assert status.not_copied == f"{status.last_error} (failed 2 times in a row)"

        clock.passes(5 * HOUR_S)
        then.reader("orders").reads_from(10, total=41, remote=20)
        assert gateway(records, offset=10).status_code == 200
        clock.passes(READY_AGE_S - 5 * HOUR_S)
        with pytest.raises(ViewBehind, match="too old to read by"):
            then.reader("orders").reads_from(10, total=0, remote=0)
        answer = gateway(records, offset=10)
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50351)
        assert gateway(records, offset=30).status_code == 200, "what the broker has needs no view"
        assert then.remote("orders").objects() == objects
        done = {each for each, times in story.effects().items() if times != seen[each]}
        assert not done & {Effect.COPIED, Effect.TRIMMED, Effect.LOG_START_MOVED, Effect.CONDEMNED, Effect.DELETED}

    clock.passes(HOUR_S)
    agent.works()
    then.remote("orders").has_segments_from(10, 20, 30, 40).holds(10, 49)
    then.log("orders").starts_at(10)
    then.local("orders").starts_at(50)
    then.reader("orders").reads_from(10, total=41, remote=40)
    assert gateway(records, offset=10).status_code == 200


@pytest.mark.slow
@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.TERM_STARTED, Effect.TERM_ENDED, Effect.BROKER_DOWN)
def test_without_enough_replicas_in_sync_what_may_have_landed_ends_the_term_and_another_goes_on(
    story: Story, clock: PassingClock
) -> None:
    """The leader answers and takes writes, but acknowledges none: `min.insync.replicas` is 2."""
    given, when, then = story
    given.settings(sweep={"grace": 7_200})
    orders(story, segments=2, tiers_led_by=0)
    agent, topic = when.agent(0).works(), story.topic("orders")
    then.local("orders").starts_at(20)
    when.produces("orders", 10)
    objects = then.remote("orders").objects()
    with only_broker_0(story):
        agent.turn()
        assert story.effects()[Effect.TERM_ENDED] == 1
        assert then.remote("orders").objects() == objects, "something was uploaded that no fact names"
        then.local("orders").starts_at(20)
        then.reader("orders").reads_from(0, total=31, remote=20)
    clock.passes(HOUR_S)
    agent.works()
    assert story.effects()[Effect.TERM_STARTED] >= 2
    then.remote("orders").has_segments_from(0, 10, 20).holds(0, 29)
    then.local("orders").starts_at(30)
    for _ in range(3):  # a late fact names a copy that never was: it is swept
        clock.passes(3 * HOUR_S)
        agent.works()
    view = then.remote("orders").view
    assert {each.state for each in view.segments.values()} == {SegmentState.COPY_SEGMENT_FINISHED}
    assert len(then.remote("orders").objects()) == 9
    assert not view.contradictions
    then.reader("orders").reads_from(0, total=31, remote=30)
    assert topic.count == 31


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.AGENT_STOPPED, Effect.BROKER_DOWN)
def test_a_leader_that_dies_before_its_copy_finished_costs_at_most_the_copy(story: Story, clock: PassingClock) -> None:
    _, when, then = story
    orders(story, segments=3, tiers_led_by=1)
    agent = when.agent(0).stops_before("append copy-finished", nth=2)
    when.broker_is_killed(1)
    try:
        agent.resumes()

        def trimmed() -> bool:
            clock.passes(PROBLEM_AGE_S)  # groups move as well: while they do, the agent asks only at intervals
            agent.works()
            return bool(then.local("orders").bounds.local_start == 30)

        eventually(trimmed, 60)
        then.remote("orders").has_segments_from(0, 10, 20).holds(0, 29)
        then.local("orders").starts_at(30)
        then.reader("orders").reads_from(0, total=31, remote=30)
    finally:
        when.broker_starts(1)
    name = story.cluster.spec.name
    eventually(lambda: all(story.admin.in_sync(name, each) == {0, 1, 2} for each in (0, 1)), 60)
