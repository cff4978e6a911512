"""A consumer group's position, committed as a client does that has no subscription."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

MOVING = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
"""A cluster answers so while it makes the topic of the offsets, and while that topic's leaders move."""
SECONDS = 120.0


def commit(config: Mapping[str, Any], group: str, topic: str, partition: int, offset: int) -> None:
    """Commit ``offset`` for ``group``; waits for a coordinator, at most two minutes. Raises KafkaException."""
    deadline = time.monotonic() + SECONDS
    own = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
    with closing(Consumer({**config, **own})) as consumer:
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
