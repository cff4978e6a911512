"""A broker that never saw the data takes over from the facts alone."""

from __future__ import annotations

import shutil

import pytest

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes

pytestmark = pytest.mark.kafka

PER_SEGMENT = 4


def produces(story: Story, segments: int) -> None:
    """Produce a segment at a time, on every replica in sync before the next: all roll at the same records."""
    for _ in range(segments):
        story.when.produces("orders", PER_SEGMENT)


def goes_on_copying(story: Story) -> None:
    """Let broker 2 lead, whose log is one record at 12: two more segments are made, copied and trimmed there."""
    _, when, then = story
    when.produces("orders", 3)
    produces(story, 2)
    when.produces("orders", 1)
    when.agent(2).works()
    then.remote("orders").has_segments_from(0, 4, 8, 12, 16, 20).holds(0, 23)
    then.local("orders").starts_at(24)
    then.reader("orders").reads_from(0, total=25, remote=24)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_partition_that_moves_to_a_broker_without_a_replica_is_copied_on_there(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0])
    produces(story_three, 3)
    when.produces("orders", 1)
    when.agent(0).works()
    then.local("orders").starts_at(12)
    when.reassigns("orders", [2])
    eventually(lambda: when.leads("orders") == 2)
    folder = story_three.sandbox.brokers[2].log_dir / f"{story_three.topic('orders').name}-0"
    assert not (folder / f"{0:020d}.log").exists(), "the new replica has what is in the remote tier only"
    then.reader("orders").reads_from(0, total=13, remote=12)
    goes_on_copying(story_three)
    when.agent(0).works()
    then.remote("orders").holds(0, 23)


@pytest.mark.slow
@observes(Effect.COPIED, Effect.TRIMMED, Effect.BROKER_DOWN, Effect.LEADER_MOVED, Effect.REMOTE_READ)
def test_a_broker_whose_disk_was_replaced_leads_again_and_goes_on(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[2, 1, 0])
    produces(story_three, 3)
    when.produces("orders", 1)
    when.agent(2).works()
    then.local("orders").starts_at(12)
    sandbox, broker = story_three.sandbox, story_three.sandbox.brokers[2]
    when.broker_is_killed(2).agent_dies(2)
    shutil.rmtree(broker.log_dir)
    eventually(lambda: when.leads("orders") != 2, 90)
    then.reader("orders").reads_from(0, total=13, remote=12)
    broker.format(sandbox.cluster_id)
    when.broker_starts(2)
    eventually(lambda: story_three.admin.in_sync(story_three.topic("orders").name, 0) == {0, 1, 2}, 90)
    when.leadership("orders", to=2)
    then.reader("orders").reads_from(0, total=13, remote=12)
    goes_on_copying(story_three)
