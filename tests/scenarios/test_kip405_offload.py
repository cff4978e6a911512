"""Kafka's own scenarios of tiered storage, re-told: records that are offloaded, and consumed from both tiers.

`tests/scenarios/scenarios.md` names the class of Kafka's for each of these.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes, telling
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.facts import OrderKind

pytestmark = pytest.mark.kafka

CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ, Effect.BROKER_DOWN)
def test_what_was_offloaded_is_consumed_from_the_middle_of_a_segment_after_a_bounce(story_own: Story) -> None:
    given, when, then = story_own
    given.topic("a", per_segment=1).with_records(3)
    given.topic("b", per_segment=2).with_records(5)
    when.agent(0).works()
    then.remote("a").has_segments_from(0, 1).holds(0, 1)
    then.local("a").starts_at(2)
    then.remote("b").has_segments_from(0, 2).holds(0, 3)
    then.local("b").starts_at(4)
    when.broker_stops(0).agent_dies(0).broker_starts(0)
    then.reader("a").reads_from(1, total=2, remote=1)
    then.reader("b").reads_from(1, total=4, remote=3)
    when.agent(0).works()
    then.remote("a").has_segments_from(0, 1)
    then.remote("b").has_segments_from(0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [CHECKPOINTS, (*CHECKPOINTS, "log-start-offset-checkpoint")], ids=["kafkas", "all"])
@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.BROKER_DOWN)
def test_a_broker_that_lost_its_checkpoints_goes_on_where_the_remote_tier_ends(
    story_own: Story, lost: tuple[str, ...]
) -> None:
    """A broker without its log start checkpoint begins at the oldest segment that it has: never below the facts."""
    given, when, then = story_own
    given.topic("orders", per_segment=1).with_records(3)
    when.agent(0).works()
    then.local("orders").starts_at(2)
    when.broker_stops(0).agent_dies(0)
    for name in lost:
        file = story_own.sandbox.brokers[0].log_dir / name
        assert file.exists()
        file.unlink()
    when.broker_starts(0).produces("orders", 2)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2, 3).holds(0, 3)
    then.local("orders").starts_at(4)
    then.log("orders").starts_at(0)
    then.reader("orders").reads_from(0, total=5, remote=4)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_topic_that_is_included_later_is_offloaded_with_its_backlog(story: Story) -> None:
    given, when, then = story
    given.settings(tiering={"exclude": [".*-orders"]})
    given.topic("orders", per_segment=1).with_records(5)
    when.agent(0).works()
    then.remote("orders").is_empty()
    then.local("orders").starts_at(0)
    when.agent_dies(0)
    given.settings(tiering={"exclude": []})
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2, 3).holds(0, 3)
    then.local("orders").starts_at(4)
    then.reader("orders").reads_from(0, total=5, remote=4)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_partitions_that_a_topic_gets_later_are_offloaded_as_its_first(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=1).with_records(3)
    when.agent(0).works()
    then.local("orders").starts_at(2)
    story.admin.expand(story.topic("orders").name, 3)
    eventually(lambda: story.admin.leader(story.topic("orders").name, 2) is not None)
    for partition in (0, 1, 2):
        when.produces("orders", 3, partition=partition)
    when.agent(0).works()
    then.remote("orders").holds(0, 4)
    then.reader("orders").reads_from(0, total=6, remote=5)
    for partition in (1, 2):
        then.remote("orders", partition).has_segments_from(0, 1).holds(0, 1)
        then.local("orders", partition).starts_at(2)
        then.reader("orders", partition).reads_from(0, total=3, remote=2)


@observes(Effect.COPIED, Effect.REMOTE_READ)
def test_segments_of_a_size_that_changes_on_the_way_are_offloaded_as_they_are_rolled(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=4).with_records(9)
    when.agent(0).works()
    when.config_changes("orders", segment_index_bytes=str(12 * 2))
    when.produces("orders", 6)
    when.agent(0).works()
    segments = then.remote("orders").view.readable
    assert {each.record_count for each in segments} >= {4, 2}
    then.remote("orders").holds(0, segments[-1].offsets.end)
    then.reader("orders").reads_all()


@pytest.mark.slow
def test_a_replica_that_moves_to_another_folder_of_its_broker_is_offloaded_from_there(tmp_path: Path) -> None:
    """JBOD: Kafka's copied offset was lost on the way once (KAFKA-16711)."""
    folders = [tmp_path / "kafka" / "broker-1" / name for name in ("data", "more")]
    dirs = ",".join(str(each) for each in folders)
    with (
        KafkaSandbox(folder=tmp_path / "kafka", properties={"log.dirs": dirs}) as kafka,
        telling(kafka, tmp_path / "told", "moved") as story,
    ):
        story.declared = (Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
        given, when, then = story
        story.cluster.folders[0] = folders
        given.topic("orders", per_segment=1).with_records(3)
        when.agent(0).works()
        then.remote("orders").has_segments_from(0, 1)
        name = f"{story.topic('orders').name}-0"
        before = next(each for each in folders if (each / name).exists())
        other = next(each for each in folders if each != before)
        story.admin.move_folder(0, story.topic("orders").name, 0, str(other))
        eventually(lambda: (other / name).exists() and not (before / name).exists())
        when.produces("orders", 1)
        when.agent(0).works()
        then.remote("orders").has_segments_from(0, 1, 2).holds(0, 2)
        then.local("orders").starts_at(3)
        then.reader("orders").reads_from(0, total=4, remote=3)
        story.check()


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.DELETED, Effect.LOG_START_MOVED)
def test_copying_is_paused_resumed_and_given_up_with_and_without_the_remote_tier(story: Story) -> None:
    """KIP-950 in our words: pause, resume, disable, delete-records while disabled, disable with the remote tier."""
    given, when, then = story
    given.topic("orders", per_segment=1).with_records(3)
    when.agent(0).works()
    when.orders("orders", OrderKind.PAUSE).produces("orders", 1)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1)
    then.reader("orders").reads_from(0, total=4, remote=2)
    when.orders("orders", OrderKind.RESUME)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2)
    when.orders("orders", OrderKind.DISABLE_KEEP).produces("orders", 1)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=1)
    when.agent(0).works()
    then.remote("orders").has_segments_from(1, 2).holds(1, 2)
    then.observed(Effect.DELETED, 1)
    when.orders("orders", OrderKind.DISABLE_DELETE)
    when.agent(0).works()
    then.remote("orders").is_empty()
    then.log("orders").starts_at(3)
    then.reader("orders").reads_from(3, total=2, remote=0).is_refused(2)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_offsets_are_found_over_both_tiers(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=2)
    first = 1_700_000_000_000
    for number in range(6):
        when.produces("orders", 1, at_ms=first + number * 10)
    when.agent(0).works()
    then.reader("orders").reads_from(0, total=6, remote=4)
    then.log("orders").starts_at(0).ends_at(6)
    then.local("orders").starts_at(4)
    assert then.remote("orders").view.copied_to == 3
    for number in range(6):
        at = first + number * 10
        then.log("orders").finds_time(at - 1, number).finds_time(at, number)
    then.log("orders").finds_time(first + 51, None)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=3)
    when.agent(0).works()
    then.log("orders").starts_at(3).finds_time(first, 3).finds_time(first + 40, 4)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=4)
    when.agent(0).works()
    then.log("orders").starts_at(4).finds_time(first, 4)
    then.local("orders").starts_at(4)
    then.remote("orders").is_empty()
    then.reader("orders").reads_from(4, total=2, remote=0).is_refused(3)
