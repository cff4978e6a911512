"""What a `TieredConsumer` hands out of the remote tier: Kafka's own `Message`, method by method.

Not a subclass: one of those costs three times as much to make, and Kafka's methods take no subclass either. A message
is a row of its block, and a column is made when the first message is asked for it: nobody pays for what nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
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


class MessageColumns:
    """The columns of one block, for all of its messages."""

    error: KafkaError | None = None
    cause: TierstateError | None = None

    def __init__(self, topic: str, partition: int, block: RecordBlock) -> None:
        self.topic, self.partition, self._block = topic, partition, block

    @cached_property
    def offsets(self) -> list[int]:
        return self._block.offsets.tolist()  # type: ignore[no-any-return]

    @cached_property
    def keys(self) -> list[Any]:
        return _bytes(self._block, kernels.KEY_AT)

    @cached_property
    def values(self) -> list[Any]:
        return _bytes(self._block, kernels.VALUE_AT)

    @cached_property
    def headers(self) -> list[Headers | None]:
        if not self._block.sums[kernels.HEADER_COUNT]:
            return [None] * len(self._block)
        listed = self._block.headers().to_pylist()
        return [each and [(pair["key"], pair["value"]) for pair in each] for each in listed]

    @cached_property
    def timestamps(self) -> list[tuple[int, int]]:
        """librdkafka's types: 1 create, 2 append."""
        return list(zip((self._block.types + 1).tolist(), self._block.timestamps.tolist(), strict=True))


class OneMessage(MessageColumns):
    """Of a message that somebody changed, or that is an error."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition = topic, partition
        self.offsets, self.keys, self.values = [offset], [None], [None]
        self.headers, self.timestamps = [None], [(0, 0)]


class TieredMessage:
    """One record of the remote tier, or what is wrong with a partition (``error()``, and ``cause()``: tierstate's own).

    ``timestamp()``: ``(type, ms)`` with librdkafka's types, 1 create and 2 append. ``leader_epoch()`` is None: nothing
    of the remote tier is ever handed back to a broker with an epoch. It keeps its block, an unpacked MiB or a batch.
    """

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: MessageColumns, row: int) -> None:
        self._columns, self._row = columns, row

    @classmethod
    def failed(
        cls, topic: str, partition: int, offset: int, error: KafkaError, cause: TierstateError | None
    ) -> TieredMessage:
        """What is wrong, where a consumer of Kafka's would say it too: in line, after the records before it."""
        columns = OneMessage(topic, partition, offset)
        columns.error, columns.cause = error, cause
        return cls(columns, 0)

    def tier(self) -> Tier:
        return Tier.REMOTE

    def cause(self) -> TierstateError | None:
        """What ``error()`` says, typed and with its facts."""
        return self._columns.cause

    def topic(self) -> str:
        return self._columns.topic

    def partition(self) -> int:
        return self._columns.partition

    def offset(self) -> int:
        return self._columns.offsets[self._row]

    def key(self) -> Any:
        return self._columns.keys[self._row]

    def value(self) -> Any:
        return self._columns.values[self._row]

    def deserialized_key(self) -> Any:
        return self.key()

    def deserialized_value(self) -> Any:
        return self.value()

    def headers(self) -> Headers | None:
        return self._columns.headers[self._row]

    def error(self) -> KafkaError | None:
        return self._columns.error

    def timestamp(self) -> tuple[int, int]:
        return self._columns.timestamps[self._row]

    def latency(self) -> None:
        return None

    def leader_epoch(self) -> None:
        return None

    def delivery_count(self) -> None:
        return None

    def set_topic(self, topic: str) -> None:
        self._own().topic = topic

    def set_headers(self, headers: Headers) -> None:
        self._own().headers = [headers]

    def set_key(self, key: Any) -> None:
        self._own().keys = [key]

    def set_value(self, value: Any) -> None:
        self._own().values = [value]

    def set_error(self, error: KafkaError | None) -> None:
        self._own().error = error

    def _own(self) -> MessageColumns:
        """Columns of this message alone, from now on."""
        if not isinstance(self._columns, OneMessage):
            own = OneMessage(self.topic(), self.partition(), self.offset())
            own.keys, own.values = [self.key()], [self.value()]
            own.headers, own.timestamps = [self.headers()], [self.timestamp()]
            self._columns, self._row = own, 0
        return self._columns

    def __len__(self) -> int:
        return len(self.value() or b"")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<TieredMessage {self.topic()}-{self.partition()}@{self.offset()}>"


def messages(block: RecordBlock, topic: str, partition: int) -> Iterator[TieredMessage]:
    """The records of a block, made as they are taken."""
    return map(TieredMessage, repeat(MessageColumns(topic, partition, block)), range(len(block)))


def _bytes(block: RecordBlock, column: int) -> list[bytes | None]:
    """Not by Arrow's `to_numpy`: it loads pandas, where that is installed."""
    return block.binary(column).to_pylist()  # type: ignore[no-any-return]


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
