"""Kafka's consumer, extended to records that the broker trimmed. It reads them directly from the object store.

    with TieredConsumer({"bootstrap.servers": …, "group.id": …, "tierstate.store.url": "s3://bucket"}) as consumer:
        consumer.subscribe(["orders"])

docs/consumer.md describes every method, the modes, and the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from functools import partial
from typing import Any, Self, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..broker.kafka_access import librdkafka_properties
from ..fetch.logical import LogicalPartition
from ..fetch.reader import LogReader
from ..runtime.clock import Clock, SystemClock
from ..state.errors import TierstateError
from ..state.offsets import TimestampMs
from ..state.routing import Tier
from .consumer_config import consumer_config
from .hand_over import HandOver
from .remote_looks import RemoteLooks, low_watermark
from .tiered_message import TieredMessage, kafka_error_of

R = TypeVar("R")
Rebalanced = Callable[["TieredConsumer", list[TopicPartition]], None]
MOST_MESSAGES = 1_000_000


class TieredConsumer(Consumer):  # type: ignore[misc]
    """A `confluent_kafka.Consumer` over both tiers. Anything not described here behaves as in that class.

    ``config``: librdkafka's properties, ``tiered.mode`` (`Mode`), and any setting of docs/settings.md as
    ``tierstate.<setting>``: ``tierstate.store.url`` is required. ``kafka_only`` is exactly Kafka's consumer.

    Memory: up to 28 MiB for each of eight partitions in the remote tier, and ``tierstate.cache.memory`` in total. Each
    further partition needs three stored pieces of 1 MiB and 512 KiB unpacked. A larger batch needs its own size.

    Raises InvalidSettings. ``message.error()`` is Kafka's error of a partition, ``message.cause()`` tierstate's.
    """

    def __init__(self, config: dict[str, Any] | None = None, /, *, clock: Clock | None = None, **more: Any) -> None:
        read = consumer_config({**(config or {}), **more})
        logger = {"logger": read.kafka.pop("logger")} if "logger" in read.kafka else {}
        super().__init__(librdkafka_properties(read.kafka), **logger)
        self._kafka: Any = super()
        self._eager = read.eager
        self._answered = self._closed = False
        self._both: HandOver | None = None
        if read.settings is not None:
            clock = clock or SystemClock()
            self._looks = RemoteLooks(read, read.settings, self._kafka, clock)
            self._both = HandOver(read, self._looks, self._kafka, clock)

    @staticmethod
    def tier_of(message: Message) -> Tier:
        """Return the tier that served ``message``: `Tier.REMOTE` or `Tier.LOCAL`."""
        return Tier.REMOTE if isinstance(message, TieredMessage) else Tier.LOCAL

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials of Kafka's consumer, and of the clients that read the remote tier."""
        self._kafka.set_sasl_credentials(username, password)
        if self._both is not None:
            self._looks.log_in_by(username, password)

    # --- records --------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return one record or error, or None after ``timeout`` seconds. None or a negative timeout waits forever.

        A `TieredMessage` is typed as the `confluent_kafka.Message` that it stands for.
        """
        if self._both is None:
            return self._kafka.poll(-1 if timeout is None else timeout)
        self._require_open()
        messages = self._both.receive(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return ``num_messages`` records or errors, or fewer after ``timeout`` seconds. Negative: wait forever."""
        if self._both is None:
            return list(self._kafka.consume(num_messages, timeout))
        self._require_open()
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._both.receive(num_messages, timeout)

    # --- assignment -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Subscribe to topics. The callbacks may change the assignment themselves, as with Kafka's consumer."""
        if self._both is None:
            callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
            self._kafka.subscribe(topics, **{name: each for name, each in callbacks.items() if each})
            return
        both = self._both

        def assigned(consumer: object, partitions: list[TopicPartition]) -> None:
            if not self._answers(on_assign, partitions):
                (self.assign if self._eager else self.incremental_assign)(partitions)

        def taken(ask: Rebalanced | None) -> Callable[[object, list[TopicPartition]], None]:
            def taken(consumer: object, partitions: list[TopicPartition]) -> None:
                both.flush()  # so that the final commit of the revoked partitions contains all records handed out
                if not self._answers(ask, partitions):
                    both.unassigned(partitions)

            return taken

        self._kafka.subscribe(
            topics, on_assign=assigned, on_revoke=taken(on_revoke), on_lost=taken(on_lost or on_revoke)
        )
        both.subscribed = True

    def _answers(self, ask: Rebalanced | None, partitions: list[TopicPartition]) -> bool:
        """Call the application's callback ``ask``, if any. Return whether the callback changed the assignment."""
        self._answered = False
        if ask is not None:
            ask(self, partitions)
        return self._answered

    def unsubscribe(self) -> None:
        """Remove the subscription, as Kafka's consumer does."""
        self._kafka.unsubscribe()
        if self._both is not None:
            self._both.subscribed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, each from its ``offset``, which may be logical (OFFSET_BEGINNING, …)."""
        self._assigned(partitions, self._kafka.assign, instead=True)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions in addition to the assigned partitions."""
        self._assigned(partitions, self._kafka.incremental_assign, instead=False)

    def _assigned(
        self, partitions: list[TopicPartition], change: Callable[[list[TopicPartition]], None], *, instead: bool
    ) -> None:
        if self._both is None:
            change(partitions)
            return
        self._both.assigned(partitions, change, instead=instead)
        self._answered = True

    def unassign(self) -> None:
        """Stop reading all partitions. The offsets of records handed out are stored first, for the commit."""
        self._unassigned(self._kafka.unassign, None)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions. The others continue. Offsets are stored first, as by `unassign`."""
        self._unassigned(partial(self._kafka.incremental_unassign, partitions), partitions)

    def _unassigned(self, change: Callable[[], None], partitions: list[TopicPartition] | None) -> None:
        if self._both is not None:
            self._both.flush()
        change()
        if self._both is not None:
            self._both.unassigned(partitions)
            self._answered = True

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, whichever tier serves them."""
        return list(self._serving.assignment())

    # --- positions ------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Continue at another offset of an assigned partition, which may be in the other tier."""
        self._serving.seek(partition)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out no record of these partitions until `resume`. They stay assigned."""
        self._serving.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out records of these partitions again, after the last record handed out."""
        self._serving.resume(partitions)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return for each partition the offset after the last record handed out, or OFFSET_INVALID if there is none."""
        return list(self._serving.position(partitions))

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit: the offset after ``message``, or ``offsets`` (the next offsets to read).

        Needs ``enable.auto.offset.store=false``. Raises ValueError unless exactly one argument is given.
        """
        if self._both is None:
            self._kafka.store_offsets(**_given(message=message, offsets=offsets))
            return
        self._require_open()
        chosen = _offsets_of(message, offsets)
        if not chosen:
            raise ValueError("expected either message or offsets")
        self._both.store(chosen)

    def commit(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> Any:
        """Commit offsets, by default the stored ones. Returns the committed offsets, or None if ``asynchronous``."""
        if self._both is None:
            return self._kafka.commit(**_given(message=message, offsets=offsets), asynchronous=asynchronous)
        self._require_open()
        chosen = _offsets_of(message, offsets)
        if chosen is not None:
            return self._kafka.commit(offsets=chosen, asynchronous=asynchronous)
        self._both.flush()
        return self._kafka.commit(asynchronous=asynchronous)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the log start offset over both tiers, and the high watermark that Kafka's consumer returns."""
        waiting = {"timeout": -1 if timeout is None else timeout, "cached": cached}
        watermarks: tuple[int, int] | None = self._kafka.get_watermark_offsets(partition, **waiting)
        if self._both is None or watermarks is None:
            return watermarks
        place = (partition.topic, partition.partition)
        if cached:
            low, high = self._both.seen_watermarks(place)
            return (watermarks[0] if low < 0 else low), max(watermarks[1], high)
        return self._answer(self._looks.ask(low_watermark, place), timeout), watermarks[1]

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return each partition's first offset at or after a time, or OFFSET_END. Timestamps may go backwards."""
        if self._both is None:
            return list(self._kafka.offsets_for_times(partitions, -1 if timeout is None else timeout))
        self._require_open()
        futures = [
            self._looks.ask(partial(_first_at, TimestampMs(each.offset)), (each.topic, each.partition))
            for each in partitions
        ]
        offsets = [self._answer(each, timeout) for each in futures]
        return [TopicPartition(each.topic, each.partition, at) for each, at in zip(partitions, offsets, strict=True)]

    @staticmethod
    def _answer(future: Future[R], timeout: float | None) -> R:
        try:
            return future.result(None if timeout is None or timeout < 0 else timeout)
        except Late as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Local: Timed out")) from error
        except TierstateError as error:
            raise KafkaException(kafka_error_of(error)) from error

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the consumer. Waits for running reads and callbacks. Any thread may call this. Idempotent."""
        if self._both is None:
            self._kafka.close()
            return
        self._both.closing = True
        self._both.flush()
        self._kafka.close()  # callbacks may call `position` and `commit`, so the consumer is still open
        self._closed = True
        self._looks.close()

    @property
    def _serving(self) -> Any:
        """Return Kafka's consumer if it reads alone, else the object for both tiers. Raises RuntimeError if closed."""
        self._require_open()
        return self._both or self._kafka

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _first_at(timestamp: TimestampMs, log: LogicalPartition, reader: LogReader) -> int:
    first = reader.offset_for_time(log.topic, log.partition.partition, timestamp)
    return OFFSET_END if first is None else first[0]


def _given(**named: object) -> dict[str, object]:
    return {name: value for name, value in named.items() if value is not None}


def _offsets_of(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is None:
        return None if offsets is None else list(offsets)
    if message.error() is not None:
        raise KafkaException(message.error())
    return [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
