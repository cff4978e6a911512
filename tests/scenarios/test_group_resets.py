"""Consumer groups that move right after an agent read their offsets: a plain consumer loses nothing to a trim."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import SEGMENT_BYTES, House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

RECORDS = 2_500
"""Records written at a time: some three segments."""
READ_A_LITTLE = 100


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    opened = House(kafka, tmp_path / "house", "resets")
    yield opened
    opened.close()


@pytest.mark.extended
def test_a_group_that_is_reset_and_one_that_is_new_read_every_record_although_the_agent_had_just_asked(
    house: House,
) -> None:
    house.run("init")
    topics = [house.create(each, local_retention_bytes=str(2 * SEGMENT_BYTES)) for each in ("reset", "new")]
    was_reset, was_new = topics
    reads_on, slow = f"{was_reset}-reads-on", f"{was_new}-slow"
    for topic in topics:
        house.append(topic, RECORDS)
    assert len(read(house, was_reset, reads_on)) == RECORDS
    with house.agent():
        starts = {topic: eventually(partial(trimmed, house, topic)) for topic in topics}
        reset_to_earliest(house, was_reset, reads_on, starts[was_reset])
        read(house, was_new, slow, READ_A_LITTLE)
        for topic in topics:
            house.append(topic, RECORDS, first=RECORDS)
        needed = {was_reset: starts[was_reset], was_new: starts[was_new] + READ_A_LITTLE}
        for topic, group in ((was_reset, reads_on), (was_new, slow)):
            agent = eventually(partial(holds, house, topic, group))
            assert (
                f"consumer group {group} still reads there, at offset {needed[topic]} (asked " in agent["not_trimmed"]
            )
            assert 0 <= agent["groups_age_s"] < 60
            assert read(house, topic, group) == [*range(needed[topic], 2 * RECORDS)]
        assert f"{'groups':<14}as asked" in house.run("describe", was_reset).stdout


def trimmed(house: House, topic: str) -> int:
    """Return the broker's start, once everything is copied and all is trimmed that may be."""
    (description,) = house.json("describe", f"{topic}:0")
    agent = description["agent"] if isinstance(description["agent"], dict) else {}
    settled = agent.get("not_copied_reason") == "all-copied" and agent.get("not_trimmed_reason") == "local-retention"
    return int(description["local_log_start_offset"]) if settled else 0


def holds(house: House, topic: str, group: str) -> dict[str, Any] | None:
    """Return the agent's report, once everything is copied and this group holds the trim."""
    (description,) = house.json("describe", f"{topic}:0")
    agent = description["agent"] if isinstance(description["agent"], dict) else {}
    return agent if agent.get("not_copied_reason") == "all-copied" and agent.get("held_by") == [group] else None


def reset_to_earliest(house: House, topic: str, group: str, earliest: int) -> None:
    """Reset the group as ``kafka-consumer-groups --reset-offsets --to-earliest --execute`` does."""
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    group_offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, earliest)])
    for future in admin.alter_consumer_group_offsets([group_offsets]).values():
        assert future.result(30).topic_partitions[0].error is None


def read(house: House, topic: str, group: str, most: int = 2 * RECORDS) -> list[int]:
    """Return the offsets that a plain consumer of this group reads, to the end or so many; it commits and leaves."""
    config = {"bootstrap.servers": house.kafka.bootstrap, "log_level": 0, "group.id": group}
    consumer: Any = Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.subscribe([topic])
        offsets = list[int]()
        while len(offsets) < most and (not offsets or offsets[-1] + 1 < end):
            message = consumer.poll(30)
            assert message is not None, f"nothing more after {len(offsets)} of {end}"
            assert message.error() is None
            offsets.append(message.offset())
        consumer.commit(offsets=[TopicPartition(topic, 0, offsets[-1] + 1)], asynchronous=False)
    finally:
        consumer.close()
    return offsets
