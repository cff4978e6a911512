"""The one loop of a `TieredConsumer`, and the only code that decides which tier serves each assigned partition.

    new           → UNKNOWN   assign: Kafka's consumer gets the partition at the offset `NOWHERE`, paused
    UNKNOWN       → REMOTE    a look (`remote_looks.py`) returned records of the remote tier
    UNKNOWN, REMOTE → KAFKA   a look found the next offset at the broker, and all earlier records were handed out:
                              Kafka's consumer gets the partition at this offset, resumed
    KAFKA         → UNKNOWN   Kafka's consumer reports out of range, for any reason: the next look decides
    any           → UNKNOWN   seek, assign
    UNKNOWN, REMOTE → NOBODY  no tier has the offset (``auto.offset.reset=error``): one error, until a seek or an assign

This module never calls seek of Kafka's consumer: after an error, seek raises ``_STATE`` and records stop arriving.
Instead it unassigns the partition and assigns it at the new offset. This keeps a pause, but discards stored offsets, so
they are stored again. Offsets of records handed out are passed to librdkafka, which commits them, within `STORE_S`
seconds, and before every commit, rebalance and close.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from ..runtime.clock import Clock
from ..state.errors import OffsetOutOfRange, Unavailable
from .assigned_partition import AssignedPartition, LookFailure, LookResult, Outcome, Server
from .consumer_config import ConsumerConfig
from .remote_looks import Place, RemoteLooks
from .tiered_message import TieredMessage, kafka_error_of

SLICE_S = 0.1
"""The longest wait for Kafka's consumer, in seconds. A close by another thread is noticed within this time."""
KAFKA_EVERY_S = 0.01
"""Seconds between polls of Kafka's consumer while the remote tier has records. Polls run callbacks and reset timers."""
WAIT_S = 0.05
"""The longest wait for Kafka's consumer, in seconds, while other partitions are paused or wait for a retry."""
SERVE_S = 0.005
STORE_S = 0.05
RETRY_S = 1.0
"""Seconds until the next look after a transient error, or (`tiered_storage_only`) at the end of the remote tier."""
NOWHERE = 2**62
"""Kafka's consumer gets this offset for a partition that it must not read yet: it is past every log's end. A logical
offset must not be used: librdkafka requests its value from the broker. A late answer then moves the partition there and
skips records, even if the partition was assigned at another offset since (decision 0049)."""
AGAIN_S = 10.0
"""Seconds until the next look after a permanent error, which is reported again as long as it lasts."""

OF_PARTITIONS = (KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF)


class HandOver:
    """The assigned partitions and the loop that reads them. Thread-safe. ``kafka``: Kafka's own consumer."""

    def __init__(self, config: ConsumerConfig, looks: RemoteLooks, kafka: Any, clock: Clock) -> None:
        self._config, self._looks, self._kafka, self._clock = config, looks, kafka, clock
        self._lock = threading.RLock()
        self._parts: dict[Place, AssignedPartition] = {}
        self._not_kafkas: deque[AssignedPartition] = deque()
        self._dirty: set[AssignedPartition] = set()
        self._stored_at = self._polled_at = clock.monotonic()
        self._served_at = 0.0
        self._kafka_has = self._kafkas_turn = False
        self._short = True
        self._untold: deque[KafkaError] = deque()
        self._to_raise: BaseException | None = None
        self.subscribed = False
        self.closing = False

    # --- records ------------------------------------------------------------------------------------------------

    def receive(self, limit: int, timeout: float) -> list[Message]:
        """Return ``limit`` messages, or fewer after ``timeout`` seconds, as librdkafka does. Negative: wait forever.

        Returned records count as handed out. If an exception comes after some records, the next call raises it.
        """
        ends = self._clock.monotonic() + timeout if timeout >= 0 else None
        taken: list[Message] = []
        if self.closing:
            raise RuntimeError("Consumer closed")
        error, self._to_raise = self._to_raise, None
        if error is not None:
            raise error
        while True:
            wait = SLICE_S if ends is None else max(0.0, min(SLICE_S, ends - self._clock.monotonic()))
            try:
                self._turn(taken, limit, wait)
            except BaseException as error:  # also from a callback, and Ctrl-C
                if not taken:
                    raise
                self._to_raise = error
                return taken
            if len(taken) >= limit or self.closing or (ends is not None and self._clock.monotonic() >= ends):
                return taken

    def _turn(self, taken: list[Message], limit: int, wait: float) -> None:
        """Add messages to ``taken`` until it has ``limit``. If this raises, the messages added so far stay in it."""
        now, before = self._clock.monotonic(), len(taken)
        with self._lock:
            # `_serve` costs too much before every single record of many partitions
            if limit - before > 1 or self._short or now - self._served_at >= SERVE_S:
                self._serve(taken, limit, now)
            if len(taken) > before or before == limit:
                return
            elsewhere = bool(self._not_kafkas)
        if not elsewhere:
            self._from_kafka(taken, limit, wait)
            return
        if self._kafkas_turn or now - self._polled_at >= KAFKA_EVERY_S:
            self._from_kafka(taken, limit, 0.0)
            self._kafkas_turn, self._kafka_has = False, len(taken) > before
        else:
            self._kafkas_turn = self._kafka_has
        if len(taken) < limit:
            with self._lock:
                self._from_remote(taken, limit)
                self._short = len(taken) < limit
        if len(taken) == before and wait > 0 and not self._kafkas_turn:
            self._waited(taken, limit, wait)

    def _waited(self, taken: list[Message], limit: int, wait: float) -> None:
        with self._lock:
            looking = any(part.looking for part in self._not_kafkas)
        if not looking:
            self._from_kafka(taken, limit, min(wait, WAIT_S))
            return
        try:
            result = self._looks.results.get(timeout=min(wait, KAFKA_EVERY_S))
        except Empty:
            return
        with self._lock:
            self._add(*result)

    def _from_remote(self, taken: list[Message], limit: int) -> None:
        for _ in range(len(self._not_kafkas)):
            part = self._not_kafkas[0]
            if not part.paused:
                records = part.take(limit - len(taken))
                if records:
                    taken += records
                    self._handed_out(part)
                    if len(taken) == limit:
                        return
            self._not_kafkas.rotate(-1)

    def _handed_out(self, part: AssignedPartition) -> None:
        if self._config.stores:
            part.stored = part.handed_out
            self._dirty.add(part)

    def _from_kafka(self, taken: list[Message], limit: int, wait: float) -> None:
        """Add messages of Kafka's consumer. It runs callbacks on this thread, so the lock must not be held."""
        if limit - len(taken) == 1:
            first = self._kafka.poll(wait)
            messages = [] if first is None else [first]
        else:
            messages = self._kafka.consume(limit - len(taken), wait)
        self._polled_at = self._clock.monotonic()
        if messages:
            with self._lock:
                taken += [message for message in messages if self._is_wanted(message)]

    def _is_wanted(self, message: Message) -> bool:
        """Return whether to hand out a message of Kafka's consumer. A dropped record is read again later.

        Also moves the position, and starts a look if Kafka's consumer reports that the offset is out of range.
        """
        error, part = message.error(), self._parts.get((message.topic(), message.partition()))
        if part is None:
            return error is not None and error.code() not in OF_PARTITIONS
        if part.server is not Server.KAFKA:
            return False
        if error is None:
            part.at = part.handed_out = message.offset() + 1
            self._handed_out(part)
            return True
        if error.code() != KafkaError._AUTO_OFFSET_RESET:
            return True
        self._kafka.pause([part.place()])
        self._look_again(part, part.at, lost="truncation" in error.str().lower())
        return False

    # --- changes of tier ------------------------------------------------------------------------------------------

    def _serve(self, taken: list[Message], limit: int, now: float) -> None:
        """Add the results of looks, move partitions between tiers and begin new looks. Add errors to ``taken``. Errors
        beyond ``limit`` wait for the next call, because some are reported only once.
        """
        self._served_at = now
        while not self._looks.results.empty():
            self._add(*self._looks.results.get())
        for_kafka: list[AssignedPartition] = []
        for part in self._not_kafkas:
            if not part.paused and len(taken) < limit and (end := part.end()) is not None:
                taken += self._ended(part, end, now, for_kafka)
            at = part.next_look(now)
            if at is not None:
                self._looks.begin(part, at)
        if for_kafka:
            self._to_kafka(for_kafka)
        if self._dirty and now - self._stored_at >= STORE_S:
            self.flush()
        while self._untold:
            error = self._untold.popleft()
            if self._config.error_cb is not None:
                self._config.error_cb(error)  # last, because it may raise

    def _add(self, part: AssignedPartition, generation: int, outcome: Outcome | BaseException) -> None:
        part.looking = False
        if isinstance(outcome, BaseException):
            if not self.closing:
                raise outcome
            return
        if generation == part.generation:
            part.add(outcome)
            if isinstance(outcome, LookResult) and outcome.reset is not None:
                self._untold.append(kafka_error_of(outcome.reset))

    def _ended(
        self, part: AssignedPartition, end: Outcome, now: float, for_kafka: list[AssignedPartition]
    ) -> list[Message]:
        if isinstance(end, LookResult):
            part.at = end.offset
            if not end.waits:
                part.server = Server.KAFKA  # so that no other look begins
                for_kafka.append(part)
                return []
            part.not_before = now + RETRY_S
            return self._end_of_partition(part)
        return self._failed(part, end, now)

    def _end_of_partition(self, part: AssignedPartition) -> list[Message]:
        """Report the end of the remote tier, once for each position, as librdkafka does."""
        if not self._config.tells_end or part.reported_end == part.at:
            return []
        part.reported_end = part.at
        error = KafkaError(KafkaError._PARTITION_EOF, "the remote tier has no more yet")
        return [TieredMessage.failed(part.topic, part.number, part.at, error, None)]

    def _failed(self, part: AssignedPartition, failure: LookFailure, now: float) -> list[Message]:
        error = kafka_error_of(failure.error)
        if isinstance(failure.error, Unavailable):
            part.try_again(failure.offset, now + RETRY_S)
            self._untold.append(error)
            return []
        if isinstance(failure.error, OffsetOutOfRange):
            part.server = Server.NOBODY
        else:
            part.try_again(failure.offset, now + AGAIN_S)
        return [TieredMessage.failed(part.topic, part.number, failure.offset, error, failure.error)]

    def _look_again(self, part: AssignedPartition, at: int, *, lost: bool = False) -> None:
        part.restart(at, lost=lost)
        if part not in self._not_kafkas:
            self._not_kafkas.append(part)

    def _to_kafka(self, parts: list[AssignedPartition]) -> None:
        """Let Kafka's consumer read ``parts``, none of them paused. An eager group must assign all partitions again."""
        for part in parts:
            self._not_kafkas.remove(part)
        if self._config.eager and self.subscribed:
            changed = list(self._parts.values())
            self._kafka.assign([self._at_kafka(part) for part in changed])
        else:
            changed = parts
            self._kafka.incremental_unassign([part.place() for part in parts])
            self._kafka.incremental_assign([self._at_kafka(part) for part in parts])
        self._dirty |= {part for part in changed if part.stored != OFFSET_INVALID}
        self.flush()
        self._kafka.resume([part.place() for part in parts])

    @staticmethod
    def _at_kafka(part: AssignedPartition) -> TopicPartition:
        return part.place(part.at if part.server is Server.KAFKA else NOWHERE)

    # --- calls of the application ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Pass the offsets of all records handed out to librdkafka, for its next commit."""
        with self._lock:
            self._stored_at = self._clock.monotonic()
            offsets = [part.place(part.stored) for part in self._dirty]
            self._dirty.clear()
        if offsets:
            try:
                self._kafka.store_offsets(offsets=offsets)
            except KafkaException:  # these partitions were revoked: their offsets can no longer be stored
                return

    def store(self, offsets: Iterable[TopicPartition]) -> None:
        """Store offsets of the application. Raises KafkaException, for example if offsets are stored automatically."""
        if self._config.stores:
            reason = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason))
        positions = list(offsets)
        self._kafka.store_offsets(offsets=positions)
        with self._lock:
            for position in positions:
                part = self._parts.get((position.topic, position.partition))
                if part is not None:
                    part.stored = position.offset

    def assigned(
        self, partitions: Iterable[TopicPartition], change: Callable[[list[Any]], None], *, instead: bool
    ) -> None:
        """Add partitions. ``change`` assigns them at Kafka's consumer. If ``instead``, they replace all others."""
        added = list(partitions)
        with self._lock:
            self.flush()
            change([TopicPartition(each.topic, each.partition, NOWHERE) for each in added])
            if instead:
                self._forget(list(self._parts))
            parts = [AssignedPartition(each) for each in added]
            if parts:
                self._kafka.pause([part.place() for part in parts])
            self._parts |= {part.key: part for part in parts}
            self._not_kafkas.extend(self._parts[key] for key in dict.fromkeys(part.key for part in parts))
            self._looks.assigned = frozenset(self._parts)

    def unassigned(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Remove ``partitions``, or all if None. Drop their waiting pieces, and later the results of running looks."""
        with self._lock:
            keys = list(self._parts) if partitions is None else [(each.topic, each.partition) for each in partitions]
            self._forget(keys)
            self._looks.assigned = frozenset(self._parts)

    def _forget(self, keys: Iterable[Place]) -> None:
        for key in keys:
            part = self._parts.pop(key, None)
            if part is not None:
                part.generation += 1
                self._looks.forget(part)
                self._dirty.discard(part)
                if part in self._not_kafkas:
                    self._not_kafkas.remove(part)

    def assignment(self) -> list[TopicPartition]:
        """Return the assignment with the offsets that were passed to assign, as librdkafka does."""
        with self._lock:
            return [part.place(part.assigned_offset) for part in self._parts.values()]

    def seek(self, to: TopicPartition) -> None:
        """Continue a partition at another offset. Raises KafkaException for a partition that is not assigned."""
        with self._lock:
            part = self._parts.get((to.topic, to.partition))
            if part is None:
                reason = f"Failed to seek to offset {to.offset}: Local: Unknown partition"
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, reason))
            if part.server is Server.KAFKA:
                self._kafka.pause([part.place()])
            part.handed_out = OFFSET_INVALID
            self._look_again(part, to.offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop handing out records of ``partitions``. Waiting records are kept, and handed out after `resume`."""
        self._paused(partitions, True, self._kafka.pause)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused(partitions, False, self._kafka.resume)

    def _paused(self, partitions: Iterable[TopicPartition], value: bool, tell: Callable[[list[Any]], None]) -> None:
        with self._lock:
            parts = [self._parts.get((each.topic, each.partition)) for each in partitions]
            for part in parts:
                if part is not None:
                    part.paused = value
            tell([part.place() for part in parts if part is not None and part.server is Server.KAFKA])

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last records handed out; OFFSET_INVALID before the first, as in librdkafka."""
        with self._lock:
            positions = []
            for partition in partitions:
                part = self._parts.get((partition.topic, partition.partition))
                at = OFFSET_INVALID if part is None else part.handed_out
                positions.append(TopicPartition(partition.topic, partition.partition, at))
            return positions

    def seen_watermarks(self, place: Place) -> tuple[int, int]:
        """Return the low and high watermark of the latest remote pieces, or OFFSET_INVALID before the first piece."""
        with self._lock:
            part = self._parts.get(place)
            return (OFFSET_INVALID, OFFSET_INVALID) if part is None else (part.low, part.high)
