"""Topics that a broker knows by the time a test asks about them."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.leader.real import eventually


def create(admin: AdminClient, *topics: NewTopic) -> None:
    """Create topics, and wait until each of their partitions has a leader.

    Kafka's controller answers as soon as a topic is made; brokers hear of it a moment later, and until then they say
    that there is no such topic.
    """
    futures: dict[str, Any] = admin.create_topics(list(topics))
    for future in futures.values():
        future.result(30)
    eventually(lambda: all(_is_led(admin, topic) for topic in topics))


def _is_led(admin: AdminClient, topic: NewTopic) -> bool:
    found = admin.list_topics(topic.topic, timeout=60).topics[topic.topic].partitions.values()
    return bool(topic.num_partitions == sum(each.leader >= 0 for each in found))
