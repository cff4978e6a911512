"""The tier-state topic: the protocol that its writers and readers use, and its implementation in Kafka.

Appends are idempotent, with ``acks=all``. If an append fails after sending and Kafka did not refuse it, its outcome is
*unknown*. This file never repeats an append.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer
from kafka.errors import UnsupportedCodecError
from kafka.record.memory_records import MemoryRecords

from ..runtime.clock import SystemClock
from ..state.epochs import LeaderEpoch
from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    InvalidRequest,
    TierstateError,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, Position, TimestampMs
from ..state.routing import Isolation
from ..state.view import Anchor
from .answers import FetchSpec, Place
from .client_config import kafka_error, producer_config
from .error_codes import OFFSET_OUT_OF_RANGE, check, denied
from .kafka_access import access_of
from .live_client import LiveClient
from .local_reads import LocalReader
from .raw import EARLIEST, LATEST, RawClient
from .tier_reader import KafkaReader, check_head, key_bytes, key_text
from .tier_reader import TierBatch as TierBatch
from .tier_reader import TierReader as TierReader
from .topics import describe_topic

APPEND_TIMEOUT_S = 30.0
"""Seconds, for ``delivery.timeout.ms``: after this time the outcome of an append is unknown."""

END_PATIENCE_S = 10.0
A_RECORD = 1
"""Bytes to fetch for one record: the broker returns a complete batch anyway, and tierstate's batches are small."""


@dataclass(frozen=True, slots=True)
class AppendTime:
    """``at``: the time at which the broker appended a record, by the broker's clock. ``sent``, ``answered``: the times
    at which this process sent the record and received the answer, in seconds of its monotonic clock.
    """

    at: TimestampMs
    sent: float
    answered: float


class TierTopic(Protocol):
    """The tier-state topic. Implementations are thread-safe."""

    @property
    def topic_id(self) -> str:
        """The id of this topic; a re-created topic has another one."""

    @property
    def mapped_partitions(self) -> int:
        """The number of partitions in the ``meta/topic`` fact: keys are mapped to these partitions."""

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        """Append a fact (or a tombstone if ``value`` is None). Return its position once the broker acknowledged it.

        Raises InvalidRequest or AccessDenied if the fact was refused: it was not written. Raises UnknownOutcome for all
        other failures: the fact may be written now, later or never.
        """

    @property
    def append_times(self) -> Mapping[int, AppendTime]:
        """This process's newest acknowledged append, by tier-state partition."""

    def end(self, tier_partition: int) -> Position:
        """Return the high watermark now. Raises BrokerUnavailable."""

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        """Return many partitions' `end`, by few requests. A partition is left out if its leader does not answer."""

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        """Return each partition's log start, 0 unless facts are missing. Partitions are left out as in `ends`."""

    def position_at(self, tier_partition: int, timestamp_ms: TimestampMs) -> Position:
        """Return the position of the first record appended at this time or later, or the end if there is none.

        ``timestamp_ms`` is compared with the broker's append times. Raises BrokerUnavailable.
        """

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        """Return the anchor of the record at this position, by one small read. Returns None if there is no record.

        Raises BrokerUnavailable, and UnknownTopic if another topic has the name now.
        """

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        """Return a reader that begins at these positions. ``epochs``: the leader epochs in which they were read.

        Raises PositionLost if a log starts above its position or was truncated below it, TierStateLost if a log starts
        above 0 and its position is 0, and BrokerUnavailable.
        """

    def problems(self) -> list[str]:
        """Return one sentence for each current problem: unsafe configuration, lost facts, open foreign transactions.

        Raises AccessDenied, BrokerUnavailable.
        """

    def current_topic_id(self) -> str:
        """Return the id of the topic that has this name now. Raises BrokerUnavailable."""

    def close(self) -> None: ...


class KafkaTierTopic:
    """The topic in Kafka. `tier_topic_setup.open_tier_topic` reads ``topic_id`` and ``mapped_partitions`` once."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        name: str,
        topic_id: str,
        mapped_partitions: int,
        check: Callable[[], list[str]] = list,
        append_timeout_s: float = APPEND_TIMEOUT_S,
    ) -> None:
        self._kafka, self._name, self._check = access_of(kafka), name, check
        self.topic_id, self.mapped_partitions = topic_id, mapped_partitions
        self._clock = SystemClock()
        self.raw = RawClient(self._kafka, self._clock)
        self._reads = LocalReader(self.raw, self._clock, END_PATIENCE_S)
        self._producer = LiveClient(self._kafka, Producer, lambda now: producer_config(now, append_timeout_s))
        self.append_times: Mapping[int, AppendTime] = {}

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        done = threading.Event()
        outcome: dict[str, Any] = {}

        def delivered(error: Any, message: Any) -> None:
            position = message.offset() if message is not None else None
            outcome.update(error=error, position=position, time=message.timestamp() if position is not None else None)
            done.set()

        name, sent = key_bytes(key), self._clock.monotonic()
        try:
            producer = self._producer.now()
        except (Unavailable, KafkaException) as error:  # no bearer token
            raise UnknownOutcome("append was not sent", key=key, reason=error) from error
        try:
            producer.produce(self._name, value=value, key=name, partition=tier_partition, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise InvalidRequest("fact was refused before sending", key=key, reason=str(error)) from error
        try:
            while not done.wait(0):
                # librdkafka ends every message within message.timeout.ms, so this loop ends too
                producer.poll(0.01)
                self._producer.now()  # passes a corrected password to the producer that waits with the fact
        except KafkaException as error:  # the producer failed permanently, but it may have sent the fact
            self._producer.forget(producer)
            unknown = UnknownOutcome("append may or may not have landed", key=key, reason=kafka_error(error))
            raise self._denied(error, key) or unknown from error
        failure, position = outcome["error"], outcome["position"]
        if failure is not None:
            if failure.fatal():
                self._producer.forget(producer)
            if denial := self._denied(failure, key):
                raise denial
            if failure.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG):
                raise InvalidRequest("fact was refused before sending", key=key, reason=failure.str())
            raise UnknownOutcome("append may or may not have landed", key=key, reason=failure.str())
        if position is None or position < 0:
            raise UnknownOutcome("append landed at an unknown position", key=key)
        kind, at = outcome["time"]
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            append_time = AppendTime(TimestampMs(at), sent, self._clock.monotonic())
            self.append_times = {**self.append_times, tier_partition: append_time}
        return Position(position)

    def _denied(self, error: Any, key: str) -> AccessDenied | None:
        """Return AccessDenied if Kafka refused the write, else None. A client without WRITE anywhere fails earlier."""
        return denied(error, topic=self._name, needs="WRITE", key=key)

    def end(self, tier_partition: int) -> Position:
        # raw ListOffsets: librdkafka's own sometimes answers "not leader" for seconds, on a quiet broker (seen)
        return self._offset(tier_partition, LATEST)

    def _offset(
        self, tier_partition: int, which: TimestampMs, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Position:
        with self._offsets_of(tier_partition):
            return Position(self._reads.offset(self._name, tier_partition, which, isolation))

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return self._offsets(tier_partitions, LATEST)

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return self._offsets(tier_partitions, EARLIEST)

    def _offsets(
        self,
        tier_partitions: Collection[int],
        which: TimestampMs,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[int, Position]:
        """Return the offsets, by one request for the leaders and one to each leader. Leave out those that fail."""
        positions: dict[int, Position] = {}
        with suppress(TierstateError):
            topic = self.raw.metadata([self._name]).topics.get(self._name)
            leaders = defaultdict[BrokerId, dict[Place, LeaderEpoch | None]](dict)
            for number in tier_partitions:
                row = topic.partitions.get(number) if topic else None
                if row is not None and row.leader is not None:
                    leaders[row.leader][self._name, number] = None
            for broker, epochs in leaders.items():
                with suppress(TierstateError):
                    answers = self.raw.list_offsets(broker, epochs, which, isolation)
                    positions |= {at[1]: Position(row.offset) for at, row in answers.items() if row.code == 0}
        return positions

    def position_at(self, tier_partition: int, timestamp_ms: TimestampMs) -> Position:
        end = self.end(tier_partition)  # read first, so that a record appended between the two answers is not skipped
        with self._offsets_of(tier_partition):
            answer = self._reads.offset_at(self._name, tier_partition, timestamp_ms)
        return end if answer is None else Position(answer[0])

    @contextmanager
    def _offsets_of(self, tier_partition: int) -> Iterator[None]:
        try:
            yield
        except (BrokerUnavailable, TimedOut) as error:
            facts = {"topic": self._name, "tier_partition": tier_partition, "reason": error}
            raise BrokerUnavailable("the tier-state topic's offsets are unknown", **facts) from error

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        at = Offset(position)
        # fetch by topic id: the records of a topic that was re-created under this name must not be read
        its_id = TopicId(self.topic_id)
        spec = FetchSpec(self._name, tier_partition, at, A_RECORD, Isolation.READ_UNCOMMITTED, topic_id=its_id)

        def ask(broker: BrokerId) -> bytes:
            answer = self.raw.fetch(broker, spec)
            if answer.code == OFFSET_OUT_OF_RANGE:
                return b""
            check(answer.code, topic=self._name, tier_partition=tier_partition, position=position)
            return answer.batches

        with self._offsets_of(tier_partition):
            return anchor_in(self._reads.on_leader(self._name, tier_partition, ask), position)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        check_head(self._name, positions, self._every_offset(positions, EARLIEST))
        return KafkaReader(self._kafka, self._name, positions, epochs or {}, self._end_of_epoch)

    def _end_of_epoch(self, tier_partition: int, epoch: int) -> Position:
        with self._offsets_of(tier_partition):
            return Position(self._reads.epoch_end(self._name, tier_partition, LeaderEpoch(epoch)))

    def problems(self) -> list[str]:
        return [*self._check(), *self._open_transactions()]

    def _open_transactions(self) -> list[str]:
        """Return a sentence for each partition with an open transaction, which is always foreign: tierstate uses none.

        Views still read (``read_uncommitted``), but while there is a problem, nothing is deleted.
        """
        numbers = range(self.mapped_partitions)
        # read the ends first: then a record appended in between does not look like an open transaction
        ends, stable = (
            self._every_offset(numbers, LATEST, each) for each in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
        )
        return [
            f"a foreign transaction is open in partition {number} from position {stable[number]} on"
            for number in numbers
            if stable[number] < ends[number]
        ]

    def _every_offset(
        self,
        tier_partitions: Collection[int],
        which: TimestampMs,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[int, Position]:
        """Return `_offsets`, and request those that it leaves out one by one. Raises BrokerUnavailable."""
        positions = self._offsets(tier_partitions, which, isolation)
        left = [number for number in tier_partitions if number not in positions]
        return positions | {number: self._offset(number, which, isolation) for number in left}

    def current_topic_id(self) -> str:
        return str(describe_topic(self.raw, self._name).topic_id)

    def close(self) -> None:
        self._producer.close()
        self.raw.close()


def anchor_in(batches: bytes, position: Position) -> Anchor | None:
    """Return the anchor of the record at ``position`` in complete batches. Returns None if there is no such record.

    Also returns None for a foreign record whose codec is not installed. tierstate's records are not compressed.
    """
    records = MemoryRecords(batches)
    try:
        while (batch := records.next_batch()) is not None:
            if batch.last_offset < position:
                continue
            for record in batch:
                if record.offset == position:
                    return Anchor.of(position, TimestampMs(record.timestamp), key_text(record.key), record.value)
                if record.offset > position:
                    return None
    except UnsupportedCodecError:
        return None
    return None
