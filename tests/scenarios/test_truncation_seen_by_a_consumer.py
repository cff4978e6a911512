"""`TieredConsumer` and Kafka's own consumer, side by side at the same offsets of one partition, when the log under them
is truncated: both get an error at the same place, and neither reads on in the other branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.test_unclean_elections import PER_SEGMENT, ROLLED_BY_SIZE, produces
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.state.errors import OffsetOutOfRange

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEPT, WRITTEN = 9, 21
"""The ends of the records that both branches have, and of the lost branch."""


def config_of(story: Story, group: str) -> dict[str, Any]:
    return {
        **story.sandbox.client_config,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "topic.metadata.refresh.interval.ms": 500,
    }


def tiered(story: Story, group: str) -> TieredConsumer:
    ours = {
        "tierstate.store.url": story.cluster.store_folder.as_uri(),
        "tierstate.tier_state.topic": story.cluster.spec.name,
    }
    return TieredConsumer({**config_of(story, group), **ours})


def taken(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    """Return so many records. An error fails the test."""
    records: list[tuple[int, bytes]] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            records.append((message.offset(), message.value()))
        return len(records) >= count

    eventually(enough, 90)
    return records


def refused(consumer: Any) -> Any:
    """Return the message of the error. A record before it fails the test."""
    messages: list[Any] = []

    def told() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is not None, f"read on at {message.offset()}: {message.value()!r}"
            messages.append(message)
        return bool(messages)

    eventually(told, 90)
    return messages[0]


def branch(story: Story, first: int, end: int) -> list[tuple[int, bytes]]:
    written = story.topic("orders").written[0]
    return [(offset, written[offset].value) for offset in range(first, end)]


@contextmanager
def another_branch(story: Story) -> Iterator[None]:
    """Broker 0 dies with the only copy of records behind `KEPT`; broker 1 leads, and another branch begins there."""
    story.when.broker_is_killed(0)
    written = story.topic("orders").written[0]
    for offset in range(KEPT, WRITTEN):
        del written[offset]
    story.when.broker_starts(1)
    try:
        eventually(lambda: story.when.leads("orders") == 1, 90)
        produces(story, 8)  # 9..16
        yield
    finally:
        story.when.broker_starts(0)


def diverging(story: Story) -> None:
    """Write 21 records, 12 of them on broker 0 alone."""
    given, _, _ = story
    config = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1", **ROLLED_BY_SIZE}
    given.settings(trim={"allow_unclean": True})
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1], **config)
    produces(story, KEPT)
    story.when.broker_stops(1)
    produces(story, WRITTEN - KEPT)


@observes(Effect.BROKER_DOWN)
def test_a_partition_read_at_the_broker_is_truncated_under_both_consumers_at_the_same_place(
    story_three: Story,
) -> None:
    diverging(story_three)
    name = story_three.topic("orders").name
    with tiered(story_three, "tiered") as ours, Consumer(config_of(story_three, "plain")) as plain:
        for consumer in (ours, plain):
            consumer.assign([TopicPartition(name, 0, 3)])
            assert taken(consumer, 10) == branch(story_three, 3, 13)
            consumer.pause([TopicPartition(name, 0)])  # records that were fetched ahead are not handed out
        with another_branch(story_three):  # the position, 13, is there again, and is another record
            for consumer in (ours, plain):
                consumer.resume([TopicPartition(name, 0)])
            messages = {consumer: refused(consumer) for consumer in (ours, plain)}
            assert {message.error().code() for message in messages.values()} == {KafkaError._AUTO_OFFSET_RESET}
            cause = messages[ours].cause()
            assert isinstance(cause, OffsetOutOfRange)
            assert "truncated" in str(cause)
            assert ours.poll(1) is None, "told once"
            for consumer in (ours, plain):
                consumer.assign([TopicPartition(name, 0, KEPT)])
                assert taken(consumer, 8) == branch(story_three, KEPT, KEPT + 8)


@observes(Effect.BROKER_DOWN)
def test_a_consumer_of_what_both_branches_have_reads_on_as_kafkas_own_does(story_three: Story) -> None:
    diverging(story_three)
    name = story_three.topic("orders").name
    with tiered(story_three, "tiered") as ours, Consumer(config_of(story_three, "plain")) as plain:
        for consumer in (ours, plain):
            consumer.assign([TopicPartition(name, 0, 1)])
            assert taken(consumer, 3) == branch(story_three, 1, 4)
            consumer.pause([TopicPartition(name, 0)])
        with another_branch(story_three):
            for consumer in (ours, plain):
                consumer.resume([TopicPartition(name, 0)])
                assert taken(consumer, 13) == branch(story_three, 4, 17)
