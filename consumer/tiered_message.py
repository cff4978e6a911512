"""Messages of the remote tier, with every method of `confluent_kafka.Message`.

`TieredMessage` is not a subclass of it: creating a subclass instance takes three times as long, and methods of Kafka's
consumer accept no subclass either. A message is a row of its block. A column is built when a message first needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from ..log import kernels
from ..log.object_kernels import Rows
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
    """The columns of one block, shared by its messages. A column is None until `made` builds it.

    Columns are slots, not `cached_property`, which Python 3.11 looks up by name at every access.
    """

    __slots__ = ("_block", "cause", "error", "headers", "keys", "offsets", "partition", "timestamps", "topic", "values")

    def __init__(self, topic: str, partition: int, block: RecordBlock | None) -> None:
        self.topic, self.partition, self._block = topic, partition, block
        self.error: KafkaError | None = None
        self.cause: TierstateError | None = None
        self.offsets: list[int] | None = None
        self.keys: list[Any] | None = None
        self.values: list[Any] | None = None
        self.headers: list[Headers | None] | None = None
        self.timestamps: list[tuple[int, int]] | None = None

    def made(self, name: str) -> list[Any]:
        assert self._block is not None
        column = _COLUMNS[name](self._block)
        setattr(self, name, column)
        return column

    @classmethod
    def of_one(cls, topic: str, partition: int, offset: int) -> MessageColumns:
        """Return columns for a single message: an error, or a message that the application changes."""
        columns = cls(topic, partition, None)
        columns.offsets, columns.keys, columns.values = [offset], [None], [None]
        columns.headers, columns.timestamps = [None], [(0, 0)]
        return columns

    @property
    def is_of_one(self) -> bool:
        return self._block is None


def _bytes(block: RecordBlock, column: int) -> list[bytes | None]:
    """Return a column's values. Conversion through NumPy is five times as fast as Arrow's `to_pylist`."""
    objects: list[bytes | None] = block.binary(column).to_numpy(zero_copy_only=False).tolist()
    return objects


def _headers(block: RecordBlock) -> list[Headers | None]:
    if not block.sums[kernels.HEADER_COUNT]:
        return [None] * len(block)
    headers_of_rows = block.headers().to_pylist()
    return [headers and [(pair["key"], pair["value"]) for pair in headers] for headers in headers_of_rows]


_COLUMNS: dict[str, Callable[[RecordBlock], list[Any]]] = {
    "offsets": lambda block: block.offsets.tolist(),
    "keys": lambda block: _bytes(block, kernels.KEY_AT),
    "values": lambda block: _bytes(block, kernels.VALUE_AT),
    "headers": _headers,
    # pairs of librdkafka's timestamp type (1 create, 2 append) and milliseconds
    "timestamps": lambda block: list(zip((block.types + 1).tolist(), block.timestamps.tolist(), strict=True)),
}


class TieredMessage:
    """One record of the remote tier, or an error of a partition: ``error()`` is Kafka's, ``cause()`` tierstate's.

    ``timestamp()`` is ``(type, ms)``; type 1 is create time, 2 append time. ``leader_epoch()`` is None, because offsets
    of the remote tier go to brokers without an epoch. A message keeps its block in memory: 512 KiB, or a batch.
    """

    __slots__ = ("_columns", "_row")

    # There is no `__init__`, to save one call per message. `BlockMessages` fills the slots instead.
    _columns: MessageColumns
    _row: int

    @classmethod
    def failed(
        cls, topic: str, partition: int, offset: int, error: KafkaError, cause: TierstateError | None
    ) -> TieredMessage:
        """Return the error of a partition at ``offset`` as a message, as Kafka's consumer does."""
        columns = MessageColumns.of_one(topic, partition, offset)
        columns.error, columns.cause = error, cause
        message = cls()
        message._columns, message._row = columns, 0
        return message

    def tier(self) -> Tier:
        return Tier.REMOTE

    def cause(self) -> TierstateError | None:
        """Return tierstate's exception behind ``error()``, or None."""
        return self._columns.cause

    def topic(self) -> str:
        return self._columns.topic

    def partition(self) -> int:
        return self._columns.partition

    def offset(self) -> int:
        return (self._columns.offsets or self._columns.made("offsets"))[self._row]

    def key(self) -> Any:
        return (self._columns.keys or self._columns.made("keys"))[self._row]

    def value(self) -> Any:
        return (self._columns.values or self._columns.made("values"))[self._row]

    def deserialized_key(self) -> Any:
        return self.key()

    def deserialized_value(self) -> Any:
        return self.value()

    def headers(self) -> Headers | None:
        return (self._columns.headers or self._columns.made("headers"))[self._row]

    def error(self) -> KafkaError | None:
        return self._columns.error

    def timestamp(self) -> tuple[int, int]:
        return (self._columns.timestamps or self._columns.made("timestamps"))[self._row]

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
        """Return columns of this message alone. The first call copies its row out of the shared block."""
        if not self._columns.is_of_one:
            own = MessageColumns.of_one(self.topic(), self.partition(), self.offset())
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


_ROWS = Rows(TieredMessage, "_columns", "_row")


class BlockMessages:
    """The messages of a block. They are created when they are taken."""

    def __init__(self, block: RecordBlock, topic: str, partition: int) -> None:
        self._columns, self._taken, self._count = MessageColumns(topic, partition, block), 0, len(block)

    def take(self, limit: int) -> list[TieredMessage]:
        """Take up to ``limit`` messages. The list is empty when all have been taken."""
        first = self._taken
        self._taken = min(first + limit, self._count)
        return _ROWS.made(self._columns, first, self._taken - first)


_CODES: tuple[tuple[type[TierstateError], int], ...] = (
    (OffsetOutOfRange, KafkaError._AUTO_OFFSET_RESET),
    (UnknownTopic, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (AccessDenied, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    (CorruptData, KafkaError._BAD_MSG),
    (TimedOut, KafkaError._TIMED_OUT),
    (Unavailable, KafkaError._TRANSPORT),
)


def kafka_error_of(error: TierstateError) -> KafkaError:
    """Return ``error`` with Kafka's code, or ``_FAIL`` if no code fits. Only Unavailable is retriable."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), KafkaError._FAIL)
    return KafkaError(code, str(error), False, isinstance(error, Unavailable))
