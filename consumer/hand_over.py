"""The one loop of a `TieredConsumer`, and the one place that says who serves each assigned partition.

    assigned      → UNKNOWN   to Kafka's consumer: assigned `NOWHERE`, paused
    UNKNOWN       → REMOTE    a look brought a piece of the remote tier
    UNKNOWN, REMOTE → KAFKA   a look says the broker has it, and all before it was handed out: assigned there, resumed
    KAFKA         → UNKNOWN   Kafka's consumer says out of range, whatever its reason: the bounds decide
    any           → UNKNOWN   seek, assign
    UNKNOWN, REMOTE → NOBODY  nobody has the offset (``auto.offset.reset=error``): one error, until a seek or an assign

Kafka's consumer is never told to seek: after an error that raises ``_STATE``, and nothing arrives any more. It is
unassigned and assigned there, which forgets stored offsets: they are stored again. A pause survives that.
Offsets are stored as records are handed out, by us, and told to librdkafka for its commits `STORE_S` later at most, and
before every commit, rebalance and close.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from ..runtime.clock import Clock
from ..state.errors import OffsetOutOfRange, Unavailable
from .assigned_partition import AssignedPartition, Failed, Looked, Outcome, Server
from .consumer_config import ConsumerConfig
from .remote_looks import Place, RemoteLooks
from .tiered_message import TieredMessage, kafka_error_of

SLICE_S = 0.1
"""How long one wait for Kafka's consumer takes: a close by another thread is seen so late."""
KAFKA_EVERY_S = 0.01
"""How often Kafka's consumer is polled while the remote tier brings enough: for callbacks, and the group's patience."""
WAIT_S = 0.05
"""How long Kafka's consumer is waited for while partitions of the remote tier have to wait too."""
SERVE_S = 0.005
STORE_S = 0.05
RETRY_S = 1.0
"""After what may pass, and where the remote tier alone is read and has no more."""
NOWHERE = 2**62
"""Where Kafka's consumer is assigned what it must not read yet: past every end. Never a logical offset: librdkafka asks
where that is, and an answer that comes late moves the partition there, over records, whatever was assigned meanwhile
(decision 0049)."""
AGAIN_S = 10.0
"""After what a person must look at: it is said again as long as it lasts."""

OF_PARTITIONS = (KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF)
Message = Any
"""Kafka's, or a `TieredMessage`."""


class HandOver:
    """Thread-safe. ``kafka``: the inner consumer, as librdkafka has it."""

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

    # --- what is handed out -------------------------------------------------------------------------------------

    def receive(self, limit: int, timeout: float) -> list[Message]:
        """As librdkafka's batch: until there are ``limit``, or ``timeout`` seconds are over (negative: never).

        Records that were taken count as handed out. An error behind them is raised by the next call.
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
            except BaseException as error:  # also of a callback, and Ctrl-C
                if not taken:
                    raise
                self._to_raise = error
                return taken
            if len(taken) >= limit or self.closing or (ends is not None and self._clock.monotonic() >= ends):
                return taken

    def _turn(self, taken: list[Message], limit: int, wait: float) -> None:
        """Add messages to ``taken``, up to ``limit`` in all. If this raises, what was added stays in it."""
        now, before = self._clock.monotonic(), len(taken)
        with self._lock:
            if self._is_due(limit - before, now):
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

    def _is_due(self, limit: int, now: float) -> bool:
        """Not before every single record, where there are many partitions."""
        return limit > 1 or self._short or now - self._served_at >= SERVE_S

    def _waited(self, taken: list[Message], limit: int, wait: float) -> None:
        with self._lock:
            looking = any(part.looking for part in self._not_kafkas)
        if not looking:
            self._from_kafka(taken, limit, min(wait, WAIT_S))
            return
        try:
            found = self._looks.results.get(timeout=min(wait, KAFKA_EVERY_S))
        except Empty:
            return
        with self._lock:
            self._add(*found)

    def _from_remote(self, taken: list[Message], limit: int) -> None:
        for _ in range(len(self._not_kafkas)):
            part = self._not_kafkas[0]
            if not part.paused:
                got = part.take(limit - len(taken))
                if got:
                    taken += got
                    self._handed_out(part)
                    if len(taken) == limit:
                        return
            self._not_kafkas.rotate(-1)

    def _handed_out(self, part: AssignedPartition) -> None:
        if self._config.stores:
            part.stored = part.handed_out
            self._dirty.add(part)

    def _from_kafka(self, taken: list[Message], limit: int, wait: float) -> None:
        """Callbacks are called in here, on this thread, without the lock."""
        if limit - len(taken) == 1:
            one = self._kafka.poll(wait)
            got = [] if one is None else [one]
        else:
            got = self._kafka.consume(limit - len(taken), wait)
        self._polled_at = self._clock.monotonic()
        if got:
            with self._lock:
                taken += [message for message in got if self._is_wanted(message)]

    def _is_wanted(self, message: Message) -> bool:
        """Of a partition that Kafka's consumer serves now; what came before a seek or a rebalance is read again."""
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

    # --- who serves -----------------------------------------------------------------------------------------------

    def _serve(self, taken: list[Message], limit: int, now: float) -> None:
        """What looks found is taken in, partitions change hands, new looks begin. Errors are added to ``taken``; those
        for which there is no room wait, because some are reported only once.
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
                self._config.error_cb(error)  # it may raise: all else is done

    def _add(self, part: AssignedPartition, generation: int, outcome: Outcome | BaseException) -> None:
        part.looking = False
        if isinstance(outcome, BaseException):
            if not self.closing:
                raise outcome
            return
        if generation == part.generation:
            part.add(outcome)
            if isinstance(outcome, Looked) and outcome.reset is not None:
                self._untold.append(kafka_error_of(outcome.reset))

    def _ended(
        self, part: AssignedPartition, end: Outcome, now: float, for_kafka: list[AssignedPartition]
    ) -> list[Message]:
        if isinstance(end, Looked):
            part.at = end.offset
            if not end.waits:
                part.server = Server.KAFKA  # so that no other look begins
                for_kafka.append(part)
                return []
            part.not_before = now + RETRY_S
            return self._end_of_partition(part)
        return self._failed(part, end, now)

    def _end_of_partition(self, part: AssignedPartition) -> list[Message]:
        """Of the remote tier alone: told once, as librdkafka does."""
        if not self._config.tells_end or part.told_end == part.at:
            return []
        part.told_end = part.at
        error = KafkaError(KafkaError._PARTITION_EOF, "the remote tier has no more yet")
        return [TieredMessage.failed(part.topic, part.number, part.at, error, None)]

    def _failed(self, part: AssignedPartition, failed: Failed, now: float) -> list[Message]:
        error = kafka_error_of(failed.error)
        if isinstance(failed.error, Unavailable):
            part.try_again(failed.offset, now + RETRY_S)
            self._untold.append(error)
            return []
        if isinstance(failed.error, OffsetOutOfRange):
            part.server = Server.NOBODY
        else:
            part.try_again(failed.offset, now + AGAIN_S)
        return [TieredMessage.failed(part.topic, part.number, failed.offset, error, failed.error)]

    def _look_again(self, part: AssignedPartition, at: int, *, lost: bool = False) -> None:
        part.restart(at, lost=lost)
        if part not in self._not_kafkas:
            self._not_kafkas.append(part)

    def _to_kafka(self, parts: list[AssignedPartition]) -> None:
        """It goes on where we stopped. None of ``parts`` is paused; an eager group may change only all that it has."""
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

    # --- what the application says --------------------------------------------------------------------------------

    def flush(self) -> None:
        """librdkafka knows the offsets of all that was handed out: its next commit has them."""
        with self._lock:
            self._stored_at = self._clock.monotonic()
            told = [part.place(part.stored) for part in self._dirty]
            self._dirty.clear()
        if told:
            try:
                self._kafka.store_offsets(offsets=told)
            except KafkaException:  # of none of them any more: they were taken away, and what is new begins there
                return

    def store(self, offsets: Iterable[TopicPartition]) -> None:
        """By the application. Raises KafkaException, also when offsets are stored without it."""
        if self._config.stores:
            said = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, said))
        given = list(offsets)
        self._kafka.store_offsets(offsets=given)
        with self._lock:
            for each in given:
                part = self._parts.get((each.topic, each.partition))
                if part is not None:
                    part.stored = each.offset

    def assigned(
        self, partitions: Iterable[TopicPartition], change: Callable[[list[Any]], None], *, anew: bool
    ) -> None:
        """``change``: how Kafka's consumer is told. ``anew``: these are all there are."""
        given = list(partitions)
        with self._lock:
            self.flush()
            change([TopicPartition(each.topic, each.partition, NOWHERE) for each in given])
            if anew:
                self._forget(list(self._parts))
            parts = [AssignedPartition(each) for each in given]
            if parts:
                self._kafka.pause([part.place() for part in parts])
            self._parts |= {part.key: part for part in parts}
            self._not_kafkas.extend(self._parts[key] for key in dict.fromkeys(part.key for part in parts))
            self._looks.assigned = frozenset(self._parts)

    def unassigned(self, partitions: Iterable[TopicPartition] | None) -> None:
        """None: all of them. What waits of them is dropped, what is under way will be."""
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
        """With the offsets that were given, as librdkafka has it."""
        with self._lock:
            return [part.place(part.given) for part in self._parts.values()]

    def seek(self, to: TopicPartition) -> None:
        """Raises KafkaException for a partition that is not assigned."""
        with self._lock:
            part = self._parts.get((to.topic, to.partition))
            if part is None:
                said = f"Failed to seek to offset {to.offset}: Local: Unknown partition"
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, said))
            if part.server is Server.KAFKA:
                self._kafka.pause([part.place()])
            part.handed_out = OFFSET_INVALID
            self._look_again(part, to.offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """What waits is kept, and handed out after `resume`."""
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

    def positions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """After the last record that was handed out, as librdkafka has it: OFFSET_INVALID before the first."""
        with self._lock:
            found = []
            for each in partitions:
                part = self._parts.get((each.topic, each.partition))
                at = OFFSET_INVALID if part is None else part.handed_out
                found.append(TopicPartition(each.topic, each.partition, at))
            return found

    def seen_watermarks(self, place: Place) -> tuple[int, int]:
        """As the last piece of the remote tier had them; OFFSET_INVALID where there was none."""
        with self._lock:
            part = self._parts.get(place)
            return (OFFSET_INVALID, OFFSET_INVALID) if part is None else (part.low, part.high)
