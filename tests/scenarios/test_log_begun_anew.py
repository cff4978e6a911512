"""The only replica's folder is lost, and its broker leads again with an empty log: offsets begin at 0 once more."""

from __future__ import annotations

import shutil

import pytest

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes
from tierstate.state.errors import LineageUnconfirmed, OffsetOutOfRange
from tierstate.state.facts import OrderKind
from tierstate.state.routing import log_start, route

pytestmark = pytest.mark.kafka

BATCH, PER_SEGMENT = 10, 50
"""Records in a batch, batches in a segment."""
SEGMENT = BATCH * PER_SEGMENT


def loses_its_folder(story: Story) -> None:
    """Let the broker find no folder of the partition, so that it makes an empty one."""
    topic = story.topic("orders")
    story.when.agent_dies(0).broker_stops(0)
    shutil.rmtree(story.sandbox.brokers[0].log_dir / f"{topic.name}-0")
    story.when.broker_starts(0)
    eventually(lambda: story.when.leads("orders") == 0, 60)
    topic.written[0].clear()


def obeys(story: Story, before: int) -> None:
    """Let the agent obey an order, which it receives a little later."""
    story.when.orders("orders", OrderKind.DELETE_RECORDS, before=before)

    def begins_there() -> bool:
        story.when.agent(0).works()
        return story.then.log("orders").view.log_start == before

    eventually(begins_there)


@observes(
    Effect.COPIED, Effect.TRIMMED, Effect.LOG_START_MOVED, Effect.BROKER_DOWN, Effect.REMOTE_READ, Effect.LOCAL_READ
)
def test_records_below_the_lost_logs_start_are_not_hidden_or_trimmed_uncopied(
    story_own: Story,
) -> None:
    given, when, then = story_own
    given.topic("orders", per_segment=PER_SEGMENT)
    when.produces("orders", 7 * SEGMENT + BATCH, batch=BATCH)
    when.agent(0).works()
    then.local("orders").starts_at(7 * SEGMENT)
    obeys(story_own, 7 * SEGMENT - 5)
    lost = then.remote("orders").bounds.leader_epoch
    loses_its_folder(story_own)
    when.produces("orders", SEGMENT + BATCH, batch=BATCH)
    bounds, view = then.remote("orders").bounds, then.remote("orders").view
    assert (bounds.local_start, bounds.high_watermark) == (0, SEGMENT + BATCH)
    assert lost is not None
    assert (bounds.leader_epoch or 0) > lost
    assert log_start(view, bounds) == 0, "no term has begun: the range is the broker's own"
    then.reader("orders").reads_from(0, total=SEGMENT + BATCH, remote=0)
    with pytest.raises(LineageUnconfirmed):
        route(view, bounds, SEGMENT + BATCH + 1)
    when.produces("orders", 7 * SEGMENT, batch=BATCH)
    when.agent(0).works()
    then.local("orders").starts_at(8 * SEGMENT)
    then.log("orders").starts_at(0)
    copied, left_of_the_lost = range(0, 8 * SEGMENT, SEGMENT), 6 * SEGMENT
    then.remote("orders").has_segments_from(*sorted((*copied, left_of_the_lost))).holds(0, 8 * SEGMENT - 1)
    then.reader("orders").reads_from(0, total=8 * SEGMENT + BATCH, remote=8 * SEGMENT).reads_all()
    with pytest.raises(OffsetOutOfRange) as error:
        route(then.remote("orders").view, then.remote("orders").bounds, 8 * SEGMENT + BATCH + 1)
    assert (error.value.valid_start, error.value.valid_end) == (0, 8 * SEGMENT + BATCH)
    obeys(story_own, SEGMENT)
