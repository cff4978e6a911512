"""Kafka's own scenarios of tiered storage, re-told: deletions in the remote tier, and their limits.

`tests/scenarios/scenarios.md` names the class of Kafka's for each of these.
"""

from __future__ import annotations

import time

import pytest

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes
from tierstate.state.facts import OrderKind

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000


@pytest.mark.parametrize("limit", [{"retention_bytes": "1"}, {"retention_ms": "1"}], ids=["size", "time"])
@observes(Effect.COPIED, Effect.LOG_START_MOVED, Effect.CONDEMNED, Effect.DELETED, Effect.LOCAL_READ)
def test_retention_deletes_every_remote_segment_and_a_record_of_the_future_stays_local(
    story: Story, limit: dict[str, str]
) -> None:
    given, when, then = story
    given.topic("orders", per_segment=1).with_records(3)
    when.produces("orders", 1, at_ms=int(time.time() * 1000) + DAY_MS)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2).holds(0, 2)
    then.local("orders").starts_at(3)
    when.config_changes("orders", **limit).agent_dies(0)
    when.agent(0).works()
    then.observed(Effect.DELETED, 3)
    then.remote("orders").is_empty()
    then.log("orders").starts_at(3)
    then.reader("orders").reads_from(3, total=1, remote=0).is_refused(2)


@observes(Effect.COPIED, Effect.REMOTE_READ)
def test_a_record_of_the_future_that_was_offloaded_stays_until_it_was_copied_long_enough_ago(story: Story) -> None:
    """Kafka's later class: k3 of tomorrow goes remote, and is read from there while older ones expire."""
    given, when, then = story
    given.topic("orders", per_segment=1).with_records(2)
    when.produces("orders", 1, at_ms=int(time.time() * 1000) + DAY_MS)
    when.produces("orders", 1, at_ms=int(time.time() * 1000))
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2)
    when.config_changes("orders", retention_ms=str(30 * 60_000)).agent_dies(0)
    when.agent(0).works()
    then.remote("orders").has_segments_from(2).holds(2, 2)
    then.reader("orders").reads_from(2, total=2, remote=1)


@observes(Effect.COPIED, Effect.DELETED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_log_start_inside_a_segment_deletes_those_below_and_reads_the_rest_of_that_one(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=2).with_records(5)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 2)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=3)
    when.agent(0).works()
    then.observed(Effect.DELETED, 1)
    then.remote("orders").has_segments_from(2)
    then.log("orders").starts_at(3)
    then.reader("orders").reads_from(3, total=2, remote=1).is_refused(2)


@pytest.mark.slow
@observes(Effect.COPIED, Effect.DELETED, Effect.LEADER_MOVED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_log_start_breach_goes_on_across_leader_epochs(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=2, brokers=[0, 1]).with_records(5)
    when.agent(0).works()
    when.orders("orders", OrderKind.DELETE_RECORDS, before=3)
    when.agent(0).works()
    then.observed(Effect.DELETED, 1)
    when.leadership("orders", to=1).produces("orders", 5)
    when.agent(1).works()
    then.remote("orders").has_segments_from(2, 4, 6).holds(2, 7)
    starts = [entry.start_offset for entry in then.remote("orders").view.lineage.entries]
    assert starts[-1] == 5
    when.orders("orders", OrderKind.DELETE_RECORDS, before=7)
    when.agent(1).works()
    then.observed(Effect.DELETED, 3)
    then.remote("orders").has_segments_from(6)
    then.log("orders").starts_at(7)
    then.reader("orders").reads_from(7, total=3, remote=1).is_refused(6)


@observes(Effect.COPIED, Effect.DELETED)
def test_a_deleted_topic_leaves_no_object_of_any_of_its_partitions(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=1, partitions=2).with_records(3).with_records(3, partition=1)
    given.topic("other", per_segment=1).with_records(3)
    when.agent(0).works()
    remote = [then.remote("orders", partition) for partition in (0, 1)]
    keys = [key for each in remote for key in each.has_segments_from(0, 1).objects()]
    assert len(keys) == 2 * 2 * 3
    when.topic_is_deleted("orders")
    store = story.cluster.store_folder
    eventually(lambda: when.agent(0).looks_after_lost_topics() or not [key for key in keys if (store / key).exists()])
    then.observed(Effect.DELETED, 4)
    then.remote("other").has_segments_from(0, 1).holds(0, 1)
