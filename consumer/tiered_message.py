"""What a `TieredConsumer` hands out of the remote tier: Kafka's own `Message`, method by method.

Not a subclass: one of those costs three times as much to make, and Kafka's methods take no subclass either.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError

from ..log import kernels
from ..log.record_block import RecordBlock
from ..state.errors import (
    AccessDenied,
    CorruptData,
    OffsetOutOfRange,
    TierstateError,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from ..state.routing import Tier

Headers = list[tuple[str, bytes | None]]


class TieredMessage:
    """One record of the remote tier, or what is wrong with a partition (``error()``, and ``cause()``: tierstate's own).

    ``timestamp()``: ``(type, ms)`` with librdkafka's types, 1 create and 2 append. ``leader_epoch()`` is None: nothing
    of the remote tier is ever handed back to a broker with an epoch.
    """

    __slots__ = ("_cause", "_error", "_headers", "_key", "_kind", "_offset", "_partition", "_time", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers | None = None,
        kind: int = -1,
        time: int = 0,
    ) -> None:
        """``kind``: 0 create time, 1 append time, as everywhere but in librdkafka; -1: no time."""
        self._topic, self._partition, self._offset = topic, partition, offset
        self._key, self._value, self._headers = key, value, headers
        self._kind, self._time = kind, time
        self._error: KafkaError | None = None
        self._cause: TierstateError | None = None

    @classmethod
    def failed(
        cls, topic: str, partition: int, offset: int, error: KafkaError, cause: TierstateError | None
    ) -> TieredMessage:
        """What is wrong, where a consumer of Kafka's would say it too: in line, after the records before it."""
        said = cls(topic, partition, offset)
        said._error, said._cause = error, cause
        return said

    def tier(self) -> Tier:
        return Tier.REMOTE

    def cause(self) -> TierstateError | None:
        """What ``error()`` says, typed and with its facts."""
        return self._cause

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def deserialized_key(self) -> Any:
        return self._key

    def deserialized_value(self) -> Any:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return self._kind + 1, self._time

    def latency(self) -> None:
        return None

    def leader_epoch(self) -> None:
        return None

    def delivery_count(self) -> None:
        return None

    def set_topic(self, topic: str) -> None:
        self._topic = topic

    def set_headers(self, headers: Headers) -> None:
        self._headers = headers

    def set_key(self, key: Any) -> None:
        self._key = key

    def set_value(self, value: Any) -> None:
        self._value = value

    def set_error(self, error: KafkaError | None) -> None:
        self._error = error

    def __len__(self) -> int:
        return len(self._value or b"")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<TieredMessage {self._topic}-{self._partition}@{self._offset}>"


def messages(block: RecordBlock, topic: str, partition: int) -> Iterator[TieredMessage]:
    """The records of a block, made as they are taken."""
    headers: Any = repeat(None)
    if block.sums[kernels.HEADER_COUNT]:
        listed = block.headers().to_pylist()
        headers = [each and [(pair["key"], pair["value"]) for pair in each] for each in listed]
    return map(
        TieredMessage,
        repeat(topic),
        repeat(partition),
        block.offsets.tolist(),
        block.binary(kernels.KEY_AT).to_numpy(zero_copy_only=False).tolist(),
        block.binary(kernels.VALUE_AT).to_numpy(zero_copy_only=False).tolist(),
        headers,
        block.types.tolist(),
        block.timestamps.tolist(),
    )


_CODES: tuple[tuple[type[TierstateError], int], ...] = (
    (OffsetOutOfRange, KafkaError._AUTO_OFFSET_RESET),
    (UnknownTopic, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (AccessDenied, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    (CorruptData, KafkaError._BAD_MSG),
    (TimedOut, KafkaError._TIMED_OUT),
    (Unavailable, KafkaError._TRANSPORT),
)


def kafka_error_of(error: TierstateError) -> KafkaError:
    """In Kafka's codes; ``_FAIL`` where none of them means it. Retriable: what may pass."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), KafkaError._FAIL)
    return KafkaError(code, str(error), False, isinstance(error, Unavailable))
