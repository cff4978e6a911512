"""The tier-state topic as its writers and readers see it: the seam, its in-memory twin, and Kafka's own.

Appends are idempotent with ``acks=all``; any failure after sending is an *unknown outcome*, never repeated here.
Readers consume by assignment, without a group, up to the high watermark, and never reset silently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from ..runtime.clock import SystemClock
from ..state.errors import BrokerUnavailable, InvalidRequest, PositionLost, TimedOut, UnknownOutcome, UnknownTopic
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Position, TimestampMs
from ..state.view import Entry
from .client_config import admin_config, consumer_config, kafka_error, producer_config
from .error_codes import error_of
from .leadership import Leadership
from .raw import LATEST, RawClient

APPEND_TIMEOUT_S = 30.0
"""``delivery.timeout``: after it an append counts as unknown."""


END_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class TierBatch:
    """Records of one tier-state partition in order, and the position after them.

    ``timestamps``: one per entry, by the broker's clock (``LogAppendTime``). ``epoch``: the leader epoch of the last
    record of the tier-state topic read so far; -1 when unknown.
    """

    tier_partition: int
    entries: tuple[Entry, ...]
    following: Position
    timestamps: tuple[TimestampMs, ...] = ()
    epoch: int = -1


class TierReader(Protocol):
    """A tail over some partitions. One thread."""

    def poll(self, timeout: float) -> list[TierBatch]:
        """What arrived within ``timeout`` seconds, maybe nothing.

        Raises PositionLost when a position no longer exists (truncation, deletion): the view must be rebuilt.
        """
        ...

    def close(self) -> None: ...


class TierTopic(Protocol):
    """Thread-safe."""

    @property
    def topic_id(self) -> str:
        """The identity of this very topic; a re-created one has another."""
        ...

    @property
    def mapped_partitions(self) -> int:
        """``n`` of the ``meta/topic`` fact: what keys are mapped by."""
        ...

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        """Append a fact (or a tombstone) and return its position once the broker acknowledged it.

        Raises InvalidRequest when the client refused it before sending (nothing happened) and UnknownOutcome for
        everything else (it may land now, later or never).
        """
        ...

    def end(self, tier_partition: int) -> Position:
        """The high watermark now. Raises BrokerUnavailable."""
        ...

    def reader(self, positions: Mapping[int, Position]) -> TierReader:
        """A tail that begins at these positions."""
        ...

    def problems(self) -> list[str]:
        """What is wrong with the topic's configuration now, one sentence each. Raises BrokerUnavailable."""
        ...

    def current_topic_id(self) -> str:
        """The identity the cluster gives the topic's name now. Raises BrokerUnavailable."""
        ...

    def close(self) -> None: ...


class MemoryTierTopic:
    """The twin: partitions as lists; passes the contract suite."""

    def __init__(self, partitions: int = 1, topic_id: str = "AAAAAAAAAAAAAAAAAAAAAg") -> None:
        self._topic_id = topic_id
        self._logs: list[list[Entry]] = [[] for _ in range(partitions)]
        self._grown = threading.Condition()
        self.drift: list[str] = []
        """What `problems` answers."""

    @property
    def topic_id(self) -> str:
        return self._topic_id

    @property
    def mapped_partitions(self) -> int:
        return len(self._logs)

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        with self._grown:
            position = Position(len(self._logs[tier_partition]))
            self._logs[tier_partition].append(Entry(key, position, value))
            self._grown.notify_all()
            return position

    def end(self, tier_partition: int) -> Position:
        with self._grown:
            return Position(len(self._logs[tier_partition]))

    def reader(self, positions: Mapping[int, Position]) -> TierReader:
        return _MemoryReader(self._logs, dict(positions), self._grown)

    def current_topic_id(self) -> str:
        return self._topic_id

    def problems(self) -> list[str]:
        return list(self.drift)

    def close(self) -> None:
        """Nothing to release."""


class _MemoryReader:
    def __init__(self, logs: list[list[Entry]], positions: dict[int, Position], grown: threading.Condition) -> None:
        self._logs, self._positions, self._grown = logs, positions, grown

    def poll(self, timeout: float) -> list[TierBatch]:
        with self._grown:
            for partition, position in self._positions.items():
                if position > len(self._logs[partition]):
                    raise PositionLost("position is past the end", tier_partition=partition, position=position)
            if not self._news():
                self._grown.wait(timeout)
            return self._news(take=True)

    def _news(self, take: bool = False) -> list[TierBatch]:
        batches = []
        for partition, position in self._positions.items():
            entries = tuple(self._logs[partition][position:])
            if entries:
                batches.append(TierBatch(partition, entries, Position(len(self._logs[partition]))))
                if take:
                    self._positions[partition] = batches[-1].following
        return batches

    def close(self) -> None:
        """Nothing to release."""


class KafkaTierTopic:
    """The real one. ``topic_id`` and ``mapped_partitions`` are read once, by `tier_topic_setup.open_tier_topic`."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        name: str,
        topic_id: str,
        mapped_partitions: int,
        check: Callable[[], list[str]] = list,
        append_timeout_s: float = APPEND_TIMEOUT_S,
    ) -> None:
        self._kafka, self._name, self._check = kafka, name, check
        self._append_timeout_s = append_timeout_s
        self._topic_id, self._mapped = topic_id, mapped_partitions
        self._admin: Any = AdminClient(admin_config(kafka))
        self._raw = RawClient(kafka, SystemClock())
        self._leadership = Leadership(self._raw, SystemClock())
        self._producer: Any = None
        self._lock = threading.Lock()

    @property
    def topic_id(self) -> str:
        return self._topic_id

    @property
    def mapped_partitions(self) -> int:
        return self._mapped

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        done = threading.Event()
        outcome: dict[str, Any] = {}

        def delivered(error: Any, message: Any) -> None:
            outcome.update(error=error, position=message.offset() if message is not None else None)
            done.set()

        producer = self._live_producer()
        try:
            producer.produce(self._name, value=value, key=key.encode(), partition=tier_partition, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise InvalidRequest("fact was refused before sending", key=key, reason=str(error)) from error
        while not done.wait(0):
            # librdkafka ends every message within message.timeout.ms, so this loop ends too
            producer.poll(0.01)
        failure, position = outcome["error"], outcome["position"]
        if failure is not None:
            if failure.fatal():
                self._forget_producer(producer)
            if failure.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG):
                raise InvalidRequest("fact was refused before sending", key=key, reason=failure.str())
            raise UnknownOutcome("append may or may not have landed", key=key, reason=failure.str())
        if position is None or position < 0:
            raise UnknownOutcome("append landed at an unknown position", key=key)
        return Position(position)

    def _live_producer(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(producer_config(self._kafka, self._append_timeout_s))
            return self._producer

    def _forget_producer(self, broken: Any) -> None:
        with self._lock:
            if self._producer is broken:
                self._producer = None

    def end(self, tier_partition: int) -> Position:
        # by raw ListOffsets: librdkafka's own answers "not leader" for seconds now and then, on a quiet broker (seen)
        facts = {"topic": self._name, "tier_partition": tier_partition}

        def ask(broker: BrokerId) -> Position:
            said = self._raw.list_offset(broker, self._name, tier_partition, LATEST)
            error = error_of(said.code, **facts)
            if error is not None:
                raise error
            return Position(said.offset)

        try:
            return self._leadership.on_leader(self._name, tier_partition, ask, END_PATIENCE_S)
        except (BrokerUnavailable, TimedOut) as error:
            raise BrokerUnavailable("end of the tier-state topic is unknown", **facts, reason=error) from error

    def reader(self, positions: Mapping[int, Position]) -> TierReader:
        return _KafkaReader(self._kafka, self._name, positions)

    def problems(self) -> list[str]:
        return self._check()

    def current_topic_id(self) -> str:
        return describe_topic_id(self._admin, self._name)

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.flush(5)
                self._producer = None
        self._raw.close()


class _KafkaReader:
    """One consumer, assigned; ``auto.offset.reset=error``."""

    MAX_RECORDS = 5_000

    def __init__(self, kafka: Mapping[str, str], name: str, positions: Mapping[int, Position]) -> None:
        self._name = name
        self._consumer: Any = Consumer(consumer_config(kafka))
        # A consumer that knows the leaders begins at once; else its first look takes half a second (seen).
        with suppress(KafkaException):
            self._consumer.list_topics(name, timeout=3)
        # position 0 is an empty view: it begins wherever the compacted log does
        self._consumer.assign(
            [TopicPartition(name, partition, at or OFFSET_BEGINNING) for partition, at in positions.items()]
        )

    def poll(self, timeout: float) -> list[TierBatch]:
        entries: dict[int, list[Entry]] = {}
        following: dict[int, Position] = {}
        # consume() alone would wait the whole time-out for its number of records: take one, then what else is there
        first = self._consumer.poll(timeout)
        for message in [] if first is None else [first, *self._consumer.consume(self.MAX_RECORDS, 0)]:
            error = message.error()
            partition = message.partition()
            if error is None:
                entries.setdefault(partition, []).append(self._entry(message))
                following[partition] = Position(message.offset() + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                following[partition] = Position(message.offset())
            elif error.code() in (
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
                KafkaError._LOG_TRUNCATION,
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError.UNKNOWN_TOPIC_ID,
            ):
                raise PositionLost(
                    "tier-state position no longer exists",
                    topic=self._name,
                    tier_partition=partition,
                    reason=error.str(),
                )
            elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise BrokerUnavailable("tier-state topic cannot be read", topic=self._name, reason=error.str())
        return [
            TierBatch(partition, tuple(entries.get(partition, ())), position)
            for partition, position in following.items()
        ]

    def _entry(self, message: Any) -> Entry:
        key = message.key()
        text = key.decode("utf-8", "backslashreplace") if key is not None else ""
        return Entry(text, Position(message.offset()), message.value())

    def close(self) -> None:
        self._consumer.close()


def describe_topic_id(admin: Any, name: str) -> str:
    """The topic's id as 22 characters of base64url. Raises UnknownTopic, BrokerUnavailable.

    librdkafka prints ids in another alphabet than Kafka, so the text is built from the two 64-bit halves.
    """
    try:
        described = admin.describe_topics(TopicCollection([name]), request_timeout=10)[name].result(timeout=15)
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
            raise UnknownTopic("no such topic", topic=name) from error
        raise BrokerUnavailable("topic cannot be described", topic=name, reason=kafka_error(error)) from error
    uuid = described.topic_id
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    return str(TopicId.of(b"".join(half.to_bytes(8, "big", signed=True) for half in halves)))
