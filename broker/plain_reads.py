"""Reads of the local tier by Kafka's own client, decoded by librdkafka: a second way to the same records.

It shares no code with raw Fetch and tierstate's decoder, so an equal digest over its records proves them right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, TopicPartition

from ..runtime.clock import Clock
from ..state.errors import BrokerUnavailable, OffsetOutOfRange, TimedOut, UnknownTopic
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation
from .client_config import consumer_config, is_of_groups, kafka_error
from .error_codes import denied

ANSWER_S = 15.0
SILENCE_S = 60.0
"""Seconds without any message from the consumer after which a read fails."""
BATCH_RECORDS = 2_000


class PlainRecord(NamedTuple):
    """``timestamp_type``: 0 for create time, 1 for log append time (librdkafka's 1 and 2 are converted)."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class PlainConsumer:
    """A consumer that is assigned partitions and joins no group. Only one thread may use it. Close it when done."""

    def __init__(self, kafka: Mapping[str, str], isolation: Isolation, clock: Clock) -> None:
        self._clock, self._isolation = clock, isolation
        self._consumer: Any = Consumer({**consumer_config(kafka), "isolation.level": str(isolation)})

    def partitions(self, topic: str) -> list[int]:
        """Return the topic's partitions. Raises UnknownTopic, BrokerUnavailable."""
        try:
            description = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise BrokerUnavailable("Kafka does not answer", reason=kafka_error(error)) from error
        if description.error is not None:
            raise UnknownTopic("no such topic", topic=topic, reason=description.error.str())
        return sorted(description.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[Offset, Offset]:
        """Return ``(start, end)`` of the local log, end exclusive: under read_committed, the last stable offset."""
        try:
            start, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        except KafkaException as error:
            raise BrokerUnavailable("bounds are unknown", topic=topic, reason=kafka_error(error)) from error
        return Offset(start), Offset(end)

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        """Return the offset of the first record at or after a time, by the broker. Returns None without one."""
        query = [TopicPartition(topic, partition, timestamp)]
        try:
            answer = self._consumer.offsets_for_times(query, timeout=ANSWER_S)[0]
        except KafkaException as error:
            raise BrokerUnavailable("offset is unknown", topic=topic, reason=kafka_error(error)) from error
        return Offset(answer.offset) if answer.offset >= 0 else None

    def records(self, topic: str, partition: int, start: Offset, end: Offset) -> Iterator[list[PlainRecord]]:
        """Yield the records of ``[start, end)`` in batches. Raises OffsetOutOfRange, TimedOut, BrokerUnavailable."""
        self._consumer.assign([TopicPartition(topic, partition, start)])
        last_arrival = self._clock.monotonic()
        position = int(start)
        while position < end:
            batch = []
            for message in self._arrived():
                last_arrival = self._clock.monotonic()
                if message.error() is not None:
                    position = self._after_error(message, start, end, position)
                    continue
                position = message.offset() + 1
                if message.offset() < end:
                    batch.append(_plain(message))
            if batch:
                yield batch
            if self._clock.monotonic() - last_arrival > SILENCE_S:
                raise TimedOut("Kafka's consumer brings nothing", topic=topic, partition=partition, offset=position)
        self._consumer.unassign()

    def _arrived(self) -> list[Any]:
        """Return the messages that arrived, after at most a second. consume() alone would always wait a second."""
        first = self._consumer.poll(1.0)
        return [] if first is None else [first, *self._consumer.consume(BATCH_RECORDS, 0)]

    def _after_error(self, message: Any, start: Offset, end: Offset, position: int) -> int:
        error = message.error()
        facts = {"topic": message.topic(), "partition": message.partition(), "reason": error.str()}
        if error.code() == KafkaError._PARTITION_EOF:
            return max(position, int(message.offset()))
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            valid_start, valid_end = self.bounds(message.topic(), message.partition())
            raise OffsetOutOfRange(
                "offset is not on the broker", valid_start=valid_start, valid_end=valid_end, offset=start, **facts
            )
        passing = error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        if passing or is_of_groups(error):
            return position
        raise denied(error, **facts) or BrokerUnavailable("Kafka's consumer failed", **facts)

    def close(self) -> None:
        self._consumer.close()


def _plain(message: Any) -> PlainRecord:
    kind, timestamp = message.timestamp()
    return PlainRecord(
        offset=message.offset(),
        timestamp=timestamp,
        timestamp_type=int(kind == TIMESTAMP_LOG_APPEND_TIME),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
