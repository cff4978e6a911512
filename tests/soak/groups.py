"""A plain consumer of a soak's topic that knows no tiers: records that leave the broker unread are lost to it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.soak.truth import Record

PATIENCE_S = 60.0


class PlainGroup:
    """A group of one partition, with a member only while it reads. Raises KafkaException; calls may be tried again."""

    def __init__(self, bootstrap: str, topic: str, partition: int, group: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.place, self.group = (topic, partition), group

    def stand(self, offset: int) -> int:
        """Set the group's offset as ``kafka-consumer-groups --reset-offsets`` does."""
        group_offsets = ConsumerGroupTopicPartitions(self.group, [TopicPartition(*self.place, offset)])
        admin = self._admin()
        for future in admin.alter_consumer_group_offsets([group_offsets]).values():
            (outcome,) = future.result(30).topic_partitions
            if outcome.error is not None:
                raise KafkaException(outcome.error)
        return offset

    def bounds(self) -> tuple[int, int]:
        """Return start and end of the broker's log."""
        with self._consumer() as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(*self.place), timeout=30)
        return int(first), int(end)

    def read_to(self, end: int) -> list[Record]:
        """Read from the committed offset. An offset that no longer exists is an error, not a jump."""
        read = list[Record]()
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(*self.place)])
            while not read or read[-1][0] + 1 < end:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{self.group} hears nothing after {len(read)} records"
                if message.error() is not None:
                    raise AssertionError(f"{self.group} does not find what it was to read: {message.error()}")
                read.append((message.offset(), message.key(), message.value()))
        return read

    def leave(self) -> None:
        """Delete the group, so that no agent waits for it."""
        admin = self._admin()
        admin.delete_consumer_groups([self.group])[self.group].result(30)

    def _admin(self) -> Any:
        """Return a new client: librdkafka keeps asking a coordinator that moved. Hold it: its futures end with it."""
        return AdminClient(self._client)

    def _consumer(self) -> Any:
        config = {"group.id": self.group, "auto.offset.reset": "error", "enable.auto.commit": False}
        return Consumer(self._client | config)
