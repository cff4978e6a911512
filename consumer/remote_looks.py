"""Looks at both tiers. They run on separate threads, so that ``poll`` never waits for the object store.

A look finds the tier of one offset, and reads the next piece if it is the remote tier. The first look opens the view,
which then follows the tier-state topic until the consumer is closed. The view keeps only facts of assigned partitions
and of the partition of the latest request.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException

from ..app.opening.connection import KIP405, SILENCE_S, Connection
from ..app.opening.kip405_connection import Kip405Connection
from ..broker.control import BrokerControl
from ..broker.error_codes import error_of_exception
from ..fetch.logical import Ask, LogicalPartition
from ..fetch.piece import Fetched, naming
from ..fetch.reader import LogReader
from ..fetch.remote_parts import AnotherLog, RemoteReads, RemoteRun, read_parts
from ..follower.follower import Follower
from ..follower.following import Following
from ..follower.open import open_view
from ..runtime.clock import Clock
from ..runtime.settings import Settings
from ..state.errors import AccessDenied, CorruptData, ObjectNotFound, OffsetOutOfRange, TierstateError, UnknownTopic
from ..state.ids import TopicIdPartition
from ..state.offsets import Extent, Offset
from ..state.routing import ReadRemote, Tier, begin_of
from ..state.segment import RemoteSegment
from .assigned_partition import AssignedPartition, LookFailure, LookResult, Outcome
from .consumer_config import ConsumerConfig

RUNS = 8
PARTS = 64
"""The most segments of one run. A new run begins after them."""
WINDOW_BYTES = 4 * 1024 * 1024

_Run = tuple[threading.Lock, RemoteRun]


class RemoteRuns:
    """Reads ahead for at most ``most`` partitions at a time, because it needs memory. Thread-safe, but only one `read`
    per partition at a time.

    A run reads ahead for one partition. With a distant store it holds up to 28 MiB: four requests of 4 MiB or a chunk,
    and the waiting pieces. With a folder it holds windows of 4 MiB: the one that is being read, and those that wait.
    Partitions beyond the first `RUNS` are read piece by piece, through the chunk cache.
    """

    def __init__(self, most: int = RUNS) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: dict[AssignedPartition, _Run] = {}
        self._doubted = WeakKeyDictionary[AssignedPartition, RemoteSegment]()
        """The segment of each read that raised AnotherLog. It is checked completely before it is read again."""

    def read(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> Fetched | None:
        """Return the piece at ``where``, or None if the caller must use ``log``. Raises AnotherLog and Unavailable."""
        piece = None
        try:
            self._prove(part, log, where, ask)
            locked_run = self._run(part, log, where, ask)
            if locked_run is None:
                return None
            lock, run = locked_run
            with lock:
                piece = run.take(where)
        except AnotherLog:
            self._doubted[part] = where.segment
            raise
        except (ObjectNotFound, CorruptData):  # `log` then reports the cause, and returns the records before the damage
            pass
        finally:
            if piece is None:
                self.end(part)
        return None if piece is None else log.of_remote(where, piece)

    def _prove(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> None:
        segment = self._doubted.get(part)
        if segment == where.segment:
            reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
            deque(read_parts([(segment, segment.offsets)], reads), 0)
        self._doubted.pop(part, None)

    def _run(self, part: AssignedPartition, log: LogicalPartition, where: ReadRemote, ask: Ask) -> _Run | None:
        with self._lock:
            entry = self._runs.get(part)
            if entry is None and len(self._runs) < self._most:
                parts = [*islice(log.parts(where, ask), PARTS)]
                reads = RemoteReads(log.remote.store, log.remote.keys, ask.isolation, WINDOW_BYTES)
                entry = self._runs[part] = threading.Lock(), RemoteRun(parts, reads)
            return entry

    def end(self, part: AssignedPartition) -> None:
        """End the run of ``part``. Waits for a running read of the run. Idempotent."""
        with self._lock:
            entry = self._runs.pop(part, None)
        if entry is not None:
            lock, run = entry
            with lock:
                run.close()

    def close(self) -> None:
        for part in list(self._runs):
            self.end(part)


LOOKERS = 4
PIECE_BYTES = 1024 * 1024
COMMITTED_S = 15.0
TAIL_BASE = -2000
"""librdkafka's OFFSET_TAIL(n) is this value minus n."""

Place = tuple[str, int]
R = TypeVar("R")


class RemoteLooks:
    """Runs looks. ``results`` gets an entry for each `begin`: the partition, its generation before, and the outcome."""

    def __init__(self, config: ConsumerConfig, settings: Settings, kafka: Any, clock: Clock) -> None:
        self._config, self._settings, self._kafka, self._clock = config, settings, kafka, clock
        self.results: SimpleQueue[tuple[AssignedPartition, int, Outcome | BaseException]] = SimpleQueue()
        self.assigned: frozenset[Place] = frozenset()
        self._pool = ThreadPoolExecutor(LOOKERS, "tiered-consumer")
        self._opened = ExitStack()
        self._opening, self._keeping = threading.Lock(), threading.Lock()
        self._parts: tuple[Follower | None, LogReader] | None = None
        """None in place of the follower: Kafka tiers the topics itself, and its view needs no partitions to keep."""
        self._connection: Connection | None = None
        self._runs = RemoteRuns()
        self._partitions: frozenset[TopicIdPartition] = frozenset()

    def close(self) -> None:
        """Wait for running looks, and close all connections. Looks that have not started are cancelled."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._runs.close()
        self._opened.close()

    def log_in_by(self, user: str, password: str) -> None:
        """Use these credentials for new connections."""
        with self._opening:
            kafka = {**self._settings.kafka, "sasl.username": user, "sasl.password": password}
            self._settings = self._settings.model_copy(update={"kafka": kafka})
            if self._connection is not None:
                self._connection.kafka.use(user, password)

    def begin(self, part: AssignedPartition, at: int) -> None:
        part.looking = True
        self._pool.submit(self._look, part, part.generation, at, part.lost)

    def ask(self, work: Callable[[LogicalPartition, LogReader], R], place: Place) -> Future[R]:
        """Call ``work`` with a partition's log and the reader, on a thread. The partition may be unassigned."""

        def run() -> R:
            reader = self._reader(place)
            return work(self._kept(reader, place), reader)

        return self._pool.submit(run)

    def _look(self, part: AssignedPartition, generation: int, at: int, lost: bool) -> None:
        outcome: Outcome | BaseException
        try:
            outcome = self._outcome(part, at, lost)
        except TierstateError as error:
            outcome = LookFailure(at, error)
        except BaseException as error:  # a bug in tierstate: the thread that polls raises it
            outcome = error
        if part.generation != generation:  # there was a seek or a revocation during the look
            self._runs.end(part)
        self.results.put((part, generation, outcome))

    def forget(self, part: AssignedPartition) -> None:
        """End reading ahead for a partition that is no longer assigned. Returns before it has ended."""
        with suppress(RuntimeError):  # the pool is closed: `close` ends all runs
            self._pool.submit(self._runs.end, part)

    def _outcome(self, part: AssignedPartition, at: int, lost: bool) -> Outcome:
        reader = self._reader(part.key)
        log = self._kept(reader, part.key)
        reset = None
        try:
            if _is_another(part, log) or lost:
                raise self._cut_off(reader, part, log, at)
            start = self._absolute(reader, part, at)
            result = self._read(part, log, start)
            if result.piece is None and not result.waits and part.topic_id is not None:
                reader.topic(part.topic, fresh=True)  # Kafka's consumer reads by name, which another topic may have now
                log = self._kept(reader, part.key)
                if _is_another(part, log):
                    raise self._cut_off(reader, part, log, at)
        except OffsetOutOfRange as error:
            if self._config.reset == "error":
                raise
            reset = None if at < 0 else error
            start = error.valid_start if self._config.reset == "earliest" else error.valid_end
            result = self._read(part, log, start)
        topic_id = log.partition.topic_id
        return LookResult(result.offset, result.piece, topic_id, result.waits, reset)

    def _read(self, part: AssignedPartition, log: LogicalPartition, at: int) -> LookResult:
        """Return a look at ``at``, with the next piece if the remote tier serves it."""
        isolation, tier, topic_id = self._config.isolation, self._config.mode.tier, log.partition.topic_id
        ask = Ask(PIECE_BYTES, isolation, tier)
        try:
            where = log.route(at, isolation, tier)
            if isinstance(where, ReadRemote):
                with naming(part.topic, part.number, at):
                    piece = self._runs.read(part, log, where, ask) or log.fetch(at, ask)
                if piece.tier is Tier.REMOTE and piece.next_offset > at:
                    return LookResult(at, piece, topic_id)
                at = piece.next_offset
            else:
                at = begin_of(where)  # above ``at`` if an accepted gap begins there
        except OffsetOutOfRange:
            if tier is not Tier.REMOTE:
                raise
            bounds = log.local_bounds()
            if not bounds.local_start <= at <= bounds.end(isolation):
                raise
        self._runs.end(part)
        return LookResult(at, None, topic_id, waits=tier is Tier.REMOTE)

    def _absolute(self, reader: LogReader, part: AssignedPartition, at: int) -> int:
        """Return the current offset for a logical one. An absolute offset is returned unchanged."""
        if at >= 0:
            return at
        begins = at == OFFSET_BEGINNING
        counted = at == OFFSET_END or at <= TAIL_BASE
        committed = -1 if begins or counted else self._committed(part)
        if committed >= 0:
            return committed
        start, end = self._extent(reader, part)
        if begins:
            return start
        if counted:
            return end if at == OFFSET_END else max(start, end - (TAIL_BASE - at))
        facts = {"topic": part.topic, "partition": part.number}
        raise OffsetOutOfRange("the group has no committed offset", valid_start=start, valid_end=end, **facts)

    def _extent(self, reader: LogReader, part: AssignedPartition) -> Extent:
        tier = Tier.REMOTE if self._config.mode.tier is Tier.REMOTE else Tier.AUTO
        return reader.extent(part.topic, part.number, self._config.isolation, tier)

    def _committed(self, part: AssignedPartition) -> int:
        try:
            answer = self._kafka.committed([part.place()], timeout=COMMITTED_S)[0]
        except KafkaException as error:
            raise error_of_exception(error, topic=part.topic, partition=part.number) from error
        if answer.error is not None:  # an error never counts as "no commit"
            raise error_of_exception(KafkaException(answer.error), topic=part.topic, partition=part.number)
        return int(answer.offset)

    def _cut_off(self, reader: LogReader, part: AssignedPartition, log: LogicalPartition, at: int) -> OffsetOutOfRange:
        """Return the error for a position in a log that no longer exists, with the valid range."""
        start, end = self._extent(reader, part)
        facts: dict[str, object] = {"topic": part.topic, "partition": part.number, "offset": at}
        reason = "the log was truncated below the position"
        if _is_another(part, log):
            reason = "the topic was deleted, and another one has its name"
            facts |= {"was": part.topic_id, "is": log.partition.topic_id}
        return OffsetOutOfRange(reason, valid_start=start, valid_end=end, **facts)

    def _reader(self, place: Place) -> LogReader:
        """Return the reader. The first call opens it, and waits for all facts of the assigned partitions."""
        with self._opening:
            if self._parts is None:
                if self._settings.view.source == KIP405:
                    kafkas = self._opened.enter_context(Kip405Connection(Connection(self._settings, self._clock)))
                    self._parts, self._connection = (None, kafkas.reader(kafkas.growing_view())), kafkas.parts
                    return self._parts[1]
                with ExitStack() as opened:
                    connection = opened.enter_context(Connection(self._settings, self._clock))
                    self._partitions = _places(connection.broker.control, {*self.assigned, place})
                    following = Following(keep=lambda number, partition: partition in self._partitions)
                    follower = open_view(connection.topic, "", self._clock, following)
                    opened.callback(follower.close)
                    for number in sorted({follower.tier_partition(each) for each in self._partitions}):
                        follower.require_fresh(number, 0, SILENCE_S)
                    self._parts, self._connection = (follower, connection.reader(follower)), connection
                    self._opened = opened.pop_all()
            return self._parts[1]

    def _kept(self, reader: LogReader, place: Place) -> LogicalPartition:
        """Return the partition's log. Waits until the view has all facts of the partition."""
        log = reader.partition(*place)
        with self._keeping:
            follower = None if self._parts is None else self._parts[0]
            if follower is None or log.partition in self._partitions:
                return log
            places = {log.partition}
            for topic, number in self.assigned:
                with suppress(TierstateError):  # the look at that partition reports the error
                    places.add(reader.partition(topic, number).partition)
            new = places - self._partitions
            self._partitions = frozenset(places)
            follower.reconsider()
            for tier_partition in sorted({follower.tier_partition(each) for each in new}):
                follower.require_fresh(tier_partition, 0, SILENCE_S)
        return log


def _places(control: BrokerControl, assigned: Iterable[Place]) -> frozenset[TopicIdPartition]:
    """Return the partitions of existing, permitted topics. Looks at the other partitions report the errors."""
    numbers: dict[str, set[int]] = {}
    for topic, number in assigned:
        numbers.setdefault(topic, set()).add(number)
    partitions: set[TopicIdPartition] = set()
    for topic, numbers_of_topic in numbers.items():
        with suppress(UnknownTopic, AccessDenied):
            topic_id = control.topic(topic).topic_id
            partitions |= {TopicIdPartition(topic_id, number) for number in numbers_of_topic}
    return frozenset(partitions)


def low_watermark(log: LogicalPartition, reader: LogReader) -> Offset:
    """Return the log start offset over both tiers."""
    return log.bounds().start(log.topic, log.partition.partition)


def _is_another(part: AssignedPartition, log: LogicalPartition) -> bool:
    """Return whether the topic was deleted and created again since the partition was last read."""
    return part.topic_id not in (None, log.partition.topic_id)
