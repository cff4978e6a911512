"""Records of the tier-state topic as a reader gets them: batches, the reader's seam, and Kafka's reader.

Readers consume by assignment, without a group, up to the high watermark, and never reset silently. A position is
resumed with the leader epoch it was read in: a truncation below it is noticed even when the log has grown again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..state.anchor import Anchor
from ..state.errors import BrokerUnavailable, InvalidRequest, PositionLost, TierStateLost
from ..state.offsets import Position, TimestampMs
from ..state.view import Entry
from .client_config import consumer_config, is_of_groups
from .error_codes import denied
from .live_client import LiveClient

UNKNOWN_EPOCH = -1
FETCH_WAIT_MS = 500
"""How long a broker waits before it answers that there is nothing new; it sends new records at once."""
FOREIGN_BYTES = "hex:"
"""Begins the text of a key whose bytes are not UTF-8 (or begin like this themselves): its bytes in hex follow."""


@dataclass(frozen=True, slots=True)
class TierBatch:
    """Records of one tier-state partition in order, and the position after them.

    ``timestamps``: one per entry, by the broker's clock (``LogAppendTime``). ``epoch``: the leader epoch of the last
    record of the partition read so far; -1 when unknown.
    """

    tier_partition: int
    entries: tuple[Entry, ...]
    following: Position
    timestamps: tuple[TimestampMs, ...] = ()
    epoch: int = UNKNOWN_EPOCH

    def anchor(self, before: Position) -> Anchor | None:
        """Return the anchor of the last record below ``before``; None without one or without its append time."""
        rows = zip(reversed(self.entries), reversed(self.timestamps), strict=False) if self.timestamps else ()
        last = next(((entry, time) for entry, time in rows if entry.position < before), None)
        return None if last is None else Anchor.of(last[0].position, last[1], last[0].key, last[0].value)


class TierReader(Protocol):
    """A tail over some partitions. One thread."""

    def poll(self, timeout: float) -> list[TierBatch]:
        """Return the records that arrived within ``timeout`` seconds, maybe none.

        Raises PositionLost when a position no longer exists (truncation, deletion): the view must be rebuilt. After
        any error, records that were read but not returned are lost: open another reader at the view's positions.
        """
        ...

    def close(self) -> None: ...


def check_head(name: str, positions: Mapping[int, Position], starts: Mapping[int, Position]) -> None:
    """Check that no record is missing between a reader's position and the log start*: it would read half a view.

    Compaction never moves a partition's log start (seen, 3.9.1 and 4.3.0): whatever did also deleted facts. Raises
    PositionLost, or TierStateLost for a reader that begins at 0: no rebuild repairs that.
    """
    for number, position in sorted(positions.items()):
        start = starts[number]
        if position == 0 < start:
            raise TierStateLost(*lost_heads(name, {number: start}))
        if position < start:
            facts = {"topic": name, "tier_partition": number, "position": position}
            raise PositionLost("the log begins above the position", **facts, log_start_offset=start)


def lost_heads(name: str, starts: Mapping[int, Position]) -> list[str]:
    """Return one sentence for each partition that begins above 0."""
    why = f"its head is gone (cleanup.policy was delete, or somebody's DeleteRecords); {TierStateLost.WAY_OUT}"
    lost = {number: start for number, start in sorted(starts.items()) if start > 0}
    return [f"partition {number} of {name} begins at {start}: {why}" for number, start in lost.items()]


def assigned(position: Position) -> int:
    """Return the offset to assign. Never Kafka's "beginning": a head that is cut right after the check would be skipped
    silently*.
    """
    return position


class KafkaReader:
    """One consumer with assigned partitions and ``auto.offset.reset=error``."""

    MAX_RECORDS = 5_000

    def __init__(
        self,
        kafka: Mapping[str, str],
        name: str,
        positions: Mapping[int, Position],
        epochs: Mapping[int, int],
        end_of_epoch: Callable[[int, int], Position],
    ) -> None:
        """``end_of_epoch(tier partition, epoch)``: where that epoch ends in the leader's log; -1: it never had it."""
        self._name, self._end_of_epoch = name, end_of_epoch
        self._positions, self._epochs = dict(positions), dict(epochs)
        for partition, position in positions.items():
            self._check_truncation(partition, position)
        self._client = LiveClient(kafka, Consumer, _config)
        self._consumer: Any = None
        self._begin()

    def _begin(self) -> None:
        """Assign the partitions to the current client; another client replaces it when its TLS files change."""
        client = self._client.now()
        if client is self._consumer:
            return
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = client
        # A consumer that knows the leaders begins at once; else its first look takes half a second (seen).
        with suppress(KafkaException):
            client.list_topics(self._name, timeout=3)
        client.assign([TopicPartition(self._name, number, assigned(at)) for number, at in self._positions.items()])

    def _check_truncation(self, partition: int, position: Position) -> None:
        """librdkafka does not check the epoch of a position that it is assigned (seen, 2.16), so it is done here."""
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
        # consume() alone would wait the whole time-out for its number of records: take one, then all that have arrived
        first = self._consumer.poll(timeout)
        for message in [] if first is None else [first, *self._consumer.consume(self.MAX_RECORDS, 0)]:
            error = message.error()
            partition = message.partition()
            if error is None:
                self._check_epoch(message, partition)
                entries.setdefault(partition, []).append(_entry(message))
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
        """Check at the first record of a newer epoch that the log still has what was read in the epoch before."""
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


def _config(kafka: Mapping[str, str]) -> dict[str, Any]:
    return {**consumer_config(kafka), "fetch.wait.max.ms": FETCH_WAIT_MS}


def _entry(message: Any) -> Entry:
    return Entry(key_text(message.key()), Position(message.offset()), message.value())


def key_text(key: bytes | None) -> str:
    """Return a key as text; different bytes give different texts. Ours are UTF-8; foreign keys must not crash us."""
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
