"""Topics that a broker knows by the time a test asks about them."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

SECONDS = 60.0


def create(admin: AdminClient, *topics: NewTopic) -> None:
    """Create topics, and wait until each of their partitions has a leader.

    Kafka's controller answers as soon as a topic is made; brokers hear of it a moment later, and until then they say
    that there is no such topic.
    """
    futures: dict[str, Any] = admin.create_topics(list(topics))
    for future in futures.values():
        future.result(30)
    deadline = time.monotonic() + SECONDS
    for topic in topics:
        while len(_led(admin, topic.topic)) < topic.num_partitions:
            assert time.monotonic() < deadline, f"no broker leads every partition of {topic.topic}"
            time.sleep(0.02)


def _led(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(topic, timeout=60).topics[topic]
    return [number for number, partition in found.partitions.items() if partition.leader >= 0]
