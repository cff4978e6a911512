"""Readers of the tier-state topic: the batches they return, their protocol, and its implementation in Kafka.

Readers are assigned partitions, join no group, read up to the high watermark, and never reset a position silently. Each
position is resumed with the leader epoch in which it was read. So a truncation below the position is detected, even if
the log has grown again since. Rules marked * prevent a loss that a model or a review found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..state.errors import BrokerUnavailable, InvalidRequest, PositionLost, TierStateLost
from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor, Entry
from .client_config import consumer_config, is_of_groups
from .error_codes import denied
from .live_client import LiveClient

UNKNOWN_EPOCH = -1
FETCH_WAIT_MS = 500
"""Milliseconds that a broker waits before it answers that there are no new records. It sends new records at once."""
FOREIGN_BYTES = "hex:"
"""The prefix of the text of a key that is not UTF-8, or that has this prefix itself. The key in hexadecimal follows."""


@dataclass(frozen=True, slots=True)
class TierBatch:
    """Records of one tier-state partition in order, and the position after them.

    ``timestamps``: one per entry, by the broker's clock (``LogAppendTime``). ``epoch``: the leader epoch of the last
    record that was read from the partition; -1 if unknown.
    """

    tier_partition: int
    entries: tuple[Entry, ...]
    following: Position
    timestamps: tuple[TimestampMs, ...] = ()
    epoch: int = UNKNOWN_EPOCH

    def anchor(self, before: Position) -> Anchor | None:
        """Return the anchor of the last record below ``before``. Returns None if it or its append time is missing."""
        rows = zip(reversed(self.entries), reversed(self.timestamps), strict=False) if self.timestamps else ()
        last = next(((entry, time) for entry, time in rows if entry.position < before), None)
        return None if last is None else Anchor.of(last[0].position, last[1], last[0].key, last[0].value)


class TierReader(Protocol):
    """A reader of some partitions. Only one thread may use it."""

    def poll(self, timeout: float) -> list[TierBatch]:
        """Return the records that arrived within ``timeout`` seconds, maybe none.

        Raises PositionLost if a position no longer exists (truncation, deletion): the view must be rebuilt. An error
        discards records that were read but not returned: after it, open another reader at the view's positions.
        """

    def close(self) -> None: ...


def check_head(name: str, positions: Mapping[int, Position], starts: Mapping[int, Position]) -> None:
    """Check that no log starts above the reader's position*: otherwise the reader would build an incomplete view.

    Compaction never moves a partition's log start (seen, 3.9.1 and 4.3.0), so a moved log start means that facts were
    deleted. Raises PositionLost, or TierStateLost for a position of 0, because no rebuild repairs that.
    """
    for number, position in sorted(positions.items()):
        start = starts[number]
        if position == 0 < start:
            raise TierStateLost(*lost_heads(name, {number: start}))
        if position < start:
            facts = {"topic": name, "tier_partition": number, "position": position}
            raise PositionLost("the log begins above the position", **facts, log_start_offset=start)


def lost_heads(name: str, starts: Mapping[int, Position]) -> list[str]:
    """Return one sentence for each partition whose log starts above 0."""
    why = f"its head is gone (cleanup.policy was delete, or somebody's DeleteRecords); {TierStateLost.WAY_OUT}"
    lost = {number: start for number, start in sorted(starts.items()) if start > 0}
    return [f"partition {number} of {name} begins at {start}: {why}" for number, start in lost.items()]


def assigned(position: Position) -> int:
    """Return the offset to assign. It is never Kafka's "beginning": records that are deleted right after `check_head`
    would be skipped silently*.
    """
    return position


class KafkaReader:
    """The `TierReader` in Kafka: one consumer with assigned partitions and ``auto.offset.reset=error``."""

    MAX_RECORDS = 5_000

    def __init__(
        self,
        kafka: Mapping[str, str],
        name: str,
        positions: Mapping[int, Position],
        epochs: Mapping[int, int],
        end_of_epoch: Callable[[int, int], Position],
    ) -> None:
        """``end_of_epoch(tier partition, epoch)``: the epoch's end in the leader's log; -1 if the log never had it."""
        self._name, self._end_of_epoch = name, end_of_epoch
        self._positions, self._epochs = dict(positions), dict(epochs)
        for partition, position in positions.items():
            self._check_truncation(partition, position)
        config = {"fetch.wait.max.ms": FETCH_WAIT_MS}
        self._client = LiveClient(kafka, Consumer, lambda now: {**consumer_config(now), **config})
        self._consumer: Any = None
        self._begin()

    def _begin(self) -> None:
        """Assign the partitions to the current client. If its TLS files changed, a new client replaces it."""
        client = self._client.now()
        if client is self._consumer:
            return
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = client
        # This makes the leaders known, so the consumer begins at once. Else its first lookup takes 0.5 s (seen).
        with suppress(KafkaException):
            client.list_topics(self._name, timeout=3)
        client.assign([TopicPartition(self._name, number, assigned(at)) for number, at in self._positions.items()])

    def _check_truncation(self, partition: int, position: Position) -> None:
        """Raise PositionLost if the log was truncated below the position. librdkafka does not check it (seen, 2.16)."""
        epoch = self._epochs.get(partition, UNKNOWN_EPOCH)
        if epoch == UNKNOWN_EPOCH or position == 0:
            return
        end = self._end_of_epoch(partition, epoch)
        if end < position:
            facts = {"topic": self._name, "tier_partition": partition, "position": position}
            raise PositionLost("the log was truncated below the position", **facts, leader_epoch=epoch, epoch_end=end)

    def poll(self, timeout: float) -> list[TierBatch]:
        entries: dict[int, list[Entry]] = {}
        times: dict[int, list[TimestampMs]] = {}
        following: dict[int, Position] = {}
        self._begin()
        # consume() alone would wait the full time-out for MAX_RECORDS, so take one record, then all that have arrived
        first = self._consumer.poll(timeout)
        for message in [] if first is None else [first, *self._consumer.consume(self.MAX_RECORDS, 0)]:
            error = message.error()
            partition = message.partition()
            if error is None:
                self._check_epoch(message, partition)
                entry = Entry(key_text(message.key()), Position(message.offset()), message.value())
                entries.setdefault(partition, []).append(entry)
                times.setdefault(partition, []).append(TimestampMs(message.timestamp()[1]))
                following[partition] = self._positions[partition] = Position(message.offset() + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                following[partition] = Position(message.offset())
            elif not is_of_groups(error):
                self._refuse(error, partition)
        return [
            TierBatch(
                partition,
                tuple(entries.get(partition, ())),
                position,
                tuple(times.get(partition, ())),
                self._epochs.get(partition, UNKNOWN_EPOCH),
            )
            for partition, position in following.items()
        ]

    def _check_epoch(self, message: Any, partition: int) -> None:
        """Check at the first record of another epoch that the log still has the records of the previous epoch."""
        answer = message.leader_epoch()
        epoch = UNKNOWN_EPOCH if answer is None else answer
        if epoch != self._epochs.get(partition, UNKNOWN_EPOCH):
            self._check_truncation(partition, self._positions[partition])
            self._epochs[partition] = epoch

    def _refuse(self, error: Any, partition: int) -> None:
        if error.code() in (
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
        if denial := denied(error, topic=self._name, needs="READ"):
            raise denial
        if not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise BrokerUnavailable("tier-state topic cannot be read", topic=self._name, reason=error.str())

    def close(self) -> None:
        self._consumer.close()


def key_text(key: bytes | None) -> str:
    """Return a key as text. Different keys have different texts. Foreign keys may not be UTF-8, and must not fail."""
    if key is None:
        return f"{FOREIGN_BYTES}none"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return FOREIGN_BYTES + key.hex()
    return FOREIGN_BYTES + key.hex() if text.startswith(FOREIGN_BYTES) else text


def key_bytes(text: str) -> bytes:
    """Return the key that `key_text` shows as this text. Raises InvalidRequest for a text that no key has."""
    if not text.startswith(FOREIGN_BYTES):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix(FOREIGN_BYTES))
    except ValueError as error:
        raise InvalidRequest("not a key: hexadecimal expected", key=repr(text)) from error
