"""Delete the head of a tier-state topic, as a person would."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox


def cut(kafka: KafkaSandbox, topic: str, partition: int, to: int) -> None:
    """Delete facts, then repair the policy: Kafka deletes no records of a topic that is only compacted."""
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    alter(admin, topic, "cleanup.policy", "delete")
    place = TopicPartition(topic, partition, to)
    for _ in range(600):  # until the broker applies the policy
        error = admin.delete_records([place])[place].exception(30)
        if error is None:
            break
        assert error.args[0].code() == KafkaError.POLICY_VIOLATION, error
        SystemClock().sleep(0.05)
    alter(admin, topic, "cleanup.policy", "compact")


def alter(admin: Any, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    for _ in range(600):
        if admin.describe_configs([resource])[resource].result(30)[name].value == value:
            return
        SystemClock().sleep(0.05)
