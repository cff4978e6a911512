"""The follower tails the tier-state topic into a view store, and is the `TierView` that all other code uses.

An iteration of the tail rebuilds a lost view, adds partitions that are wanted again, and applies new records. If
``tail`` is set, a thread runs the iterations. Otherwise the callers that wait run them (a test, a one-shot tool).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from ..broker.tier_topic import TierReader, TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import FactsApplied, SecondValueSeen, ViewRebuilt, ViewStopped
from ..runtime.watchdog import alive, inherited, loop
from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    CorruptData,
    DiskFull,
    PositionLost,
    TierstateError,
    TierStateLost,
    Unavailable,
    UnknownTopic,
    ViewBehind,
)
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import said_by_people, tier_partition_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import READY_AGE_S, SecondValue, ViewStore
from .as_of import AsOf
from .following import EVERYTHING, Following, Interest
from .generations import Generations
from .progress import Progress
from .replay import Builder, reader_at

R = TypeVar("R")
TOPIC_ID_CHECK_S = 30.0
"""Seconds between two checks of a running tail that the topic has the same topic id and the same history."""
BROKER_RETRY_S = 1.0
RETRY_S = 3.0
"""Seconds until the next iteration after any other error of `MAY_PASS`, for example a full disk."""
MAY_PASS = (Unavailable, UnknownTopic, TierStateLost, AccessDenied)
"""Errors after which the tail retries. Until a retry succeeds, callers that wait for a tail thread get the error,
except BrokerUnavailable."""


class Follower:
    """A `TierView` over a store and a topic. ``lost`` is the reason why ``store`` is None, and is otherwise ignored."""

    def __init__(
        self,
        topic: TierTopic,
        store: ViewStore | None,
        generations: Generations,
        clock: Clock,
        following: Following = EVERYTHING,
        *,
        lost: str = "no view on disk",
    ) -> None:
        tier_partitions = following.tier_partitions
        self._topic, self._clock, self._listener = topic, clock, following.listener
        self._generations, self._tail, self._poll_s = generations, following.tail, following.poll_s
        self._partitions = list(range(topic.mapped_partitions) if tier_partitions is None else tier_partitions)
        self._store = store
        self._interest = Interest(topic.mapped_partitions, following.keep)
        self._as_of = AsOf(topic, clock, self._partitions)
        self._reader: TierReader | None = None
        self._progress = Progress()
        self._applied = self._progress.lock
        self._turning = threading.RLock()
        self._captured: dict[int, float] = {}
        self._settled = False
        self.lost = lost if store is None else None
        """The reason why the view must be rebuilt, or None. Until the rebuild, the old view is still readable."""
        self._unproven = False
        self._generation = 0
        self._stop = threading.Event()
        self._builder = Builder(topic, generations, following.seed, self._interest, clock, self._partitions, self._stop)
        self._checked_topic_id = clock.monotonic()
        self._thread = threading.Thread(target=inherited(self._run), name="follower", daemon=True)

    def start(self) -> Follower:
        """Rebuild a missing or lost view, and start the tail thread if ``tail`` is set.

        The view is usable when this returns, and fresh after `require_fresh`.
        """
        if self._store is not None:
            try:
                self._as_of.begin(self._store)
            except PositionLost as lost:
                self._lose(str(lost))
        if self.lost is not None:
            self._replace(self.lost)
        with suppress(Unavailable, TierStateLost):  # then the first iteration settles, or raises
            self._settle()
        if self._tail:
            self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close_reader()
        if self._store is not None:
            self._store.close()
            self._store = None
        self._generations.close()

    # --- the TierView seam -------------------------------------------------------------------------------------

    @property
    def store(self) -> ViewStore:
        """The store to which facts are applied. Raises ViewBehind if there is no store yet, or after `close`."""
        if self._store is None:
            raise ViewBehind("the view is not open")
        return self._store

    @property
    def trouble(self) -> TierstateError | None:
        """The error that blocks the tail while it retries, or None. For example: the disk is full."""
        return self._progress.trouble

    @property
    def failure(self) -> TierstateError | None:
        """The error that ended the tail for good, or None while the tail runs or retries."""
        return self._progress.failure

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        number = self.tier_partition(partition)
        store = self._holding(number, partition)
        view = self._read(lambda: store.state(partition).view())
        foreign = store.foreign(number)
        return replace(view, degraded=view.degraded + foreign) if foreign else view

    def partitions(self) -> list[TopicIdPartition]:
        return self._read(self.store.partitions)

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        store = self._holding(self.tier_partition(partition), partition)
        return self._read(lambda: store.state(partition).facts())

    def _holding(self, number: int, partition: TopicIdPartition) -> ViewStore:
        store = self.store
        if partition in store.dropped(number):
            raise ViewBehind("this view does not keep the partition, or not yet", partition=partition)
        return store

    def _read(self, read: Callable[[], R]) -> R:
        try:
            return read()
        except CorruptData as damaged:
            self._lose(str(damaged))
            raise ViewBehind("the view on disk is damaged and is being rebuilt", reason=damaged) from damaged

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return tier_partition_of(partition, self._topic.mapped_partitions)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return self._read(lambda: self.store.second_values(partition))

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        self.store.forget_second_value(partition, key)

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        def reached() -> bool:
            whole = self._settled and self.lost is None and self._store is not None
            return whole and self.store.position(tier_partition) > position

        self._wait(reached, timeout)
        if not reached():
            facts = {"reason": self.lost} if self.lost else {}
            raise ViewBehind(
                "view has not applied this position yet",
                tier_partition=tier_partition,
                position=position,
                applied=self.store.position(tier_partition),
                **facts,
            )

    def _wait(self, reached: Callable[[], bool], timeout: float) -> None:
        """Wait until ``reached``, for at most ``timeout`` seconds. Raises `failure` or `trouble` if one of them is set.

        Without a tail thread, run iterations until ``reached`` or until an iteration does not change the view.
        """
        if self._tail:
            self._progress.wait(reached, timeout)
        else:
            moves = -1
            while (self.trouble is not None or not reached()) and moves != self._progress.moves:
                moves = self._progress.moves
                self.advance()
        if (stopped_by := self._progress.stopped_by) is not None:
            raise stopped_by

    def require_fresh(self, tier_partition: int, max_age: float, timeout: float = 30.0) -> None:
        if tier_partition in self._partitions and not self._as_of.in_time(self.store, tier_partition):
            self._lose("the view was last at the end too long ago")  # after a machine sleep, before the tail sees it
        while True:
            with self._applied:
                generation, captured = self._generation, self._captured.get(tier_partition)
            at = self._clock.monotonic()
            if captured is not None and at - captured < max_age and self._progress.stopped_by is None:
                return
            if not self._tail:
                self.advance()  # so that a truncation is noticed even if there is nothing to wait for
            before = self.store.position(tier_partition)
            end = self._topic.end(tier_partition)
            if generation == self._generation and before > end:
                self._lose(f"position is past the end. tier_partition={tier_partition} position={before} end={end}")
            self.wait_applied(tier_partition, Position(end - 1), timeout)
            with self._applied:
                if self._generation == generation:
                    self._captured[tier_partition] = at
                    return

    def require_ready(self, tier_partition: int) -> None:
        try:
            self.require_fresh(tier_partition, READY_AGE_S)
        except DiskFull:  # the view only grows older, as without a broker
            age = self.age_s(tier_partition)
            if age is None or age >= READY_AGE_S:
                raise

    def age_s(self, tier_partition: int) -> float | None:
        with self._applied:
            captured = self._captured.get(tier_partition)
        return None if captured is None else self._clock.monotonic() - captured

    # --- which partitions are kept -----------------------------------------------------------------------------

    def reconsider(self) -> None:
        """Call ``keep`` again for every partition in the next iteration. From now on, nothing counts as fresh.

        The next iteration drops unwanted partitions. A partition that is wanted again raises ViewBehind until all of
        its facts were added to the view, in one step.
        """
        with self._applied:
            self._settled = False
            self._outdate()

    def _settle(self) -> None:
        """Drop partitions that ``keep`` no longer selects, and add partitions again that it selects."""
        with self._applied:
            generation = self._generation
            self._interest.reconsider()
        self._builder.settle(self.store)
        with self._applied:
            self._settled = generation == self._generation
            self._progress.moved()

    # --- the tail ----------------------------------------------------------------------------------------------

    def advance(self) -> int:
        """Run one iteration without waiting: apply new records, and return the number of records read.

        Only for a follower without a tail thread. Raises the error that stopped the iteration. After an error of
        `MAY_PASS` the next call retries. After any other error, each later call raises that error again.
        """
        if self.failure is not None:
            raise self.failure
        try:
            return self._turn(0.0)
        except MAY_PASS:
            raise
        except TierstateError as error:
            self._progress.fails(error)
            raise

    @loop("view")
    def _run(self) -> None:
        while not self._stop.is_set():
            alive()
            try:
                self._turn(self._poll_s)
            except BrokerUnavailable:
                # callers read the view as it is; require_fresh raises for callers that need a fresh view
                self._stop.wait(BROKER_RETRY_S)
            except MAY_PASS:
                self._stop.wait(RETRY_S)
            except TierstateError as error:
                self._progress.fails(error)
                break
            except Exception as error:  # a bug: callers that wait for this view must get the error too
                self._progress.fails(ViewBehind(f"the follower died: {error!r}"))
                raise

    def _turn(self, timeout: float) -> int:
        with self._turning:
            try:
                if self.lost is not None:
                    self._replace(self.lost)
                if not self._settled:
                    self._settle()
                self._check_topic_id()
                self._as_of.check(self.store)
                read = self._read_topic(timeout)
                self._keep_fresh()
            except (PositionLost, CorruptData) as lost:
                self._lose(str(lost))
                if self._unproven:  # without this, a view that is lost again and again would be rebuilt without a pause
                    raise ViewBehind("the view was lost again as soon as it was rebuilt", reason=lost) from lost
                return 0
            except MAY_PASS as error:
                self._close_reader()  # the next reader reads unapplied records again
                if not isinstance(error, BrokerUnavailable):
                    if type(error) is not type(self.trouble):
                        self._listener(ViewStopped(str(error)))
                    self._progress.meets(error)
                raise
            self._unproven = False
            self._progress.meets(None)
            return read

    def _keep_fresh(self) -> None:
        """Record the captured ends that the view has reached, and capture new ends when they are due.

        This needs no request of a caller: when the broker becomes unavailable, reads use a recently fresh view.
        """
        for each in self._as_of.reached(self.store):
            with self._applied:
                if each.generation == self._generation:
                    self._captured[each.tier_partition] = max(
                        self._captured.get(each.tier_partition, 0.0), each.asked_s
                    )
        self._as_of.keep_up(self.store, self._generation)

    def _read_topic(self, timeout: float) -> int:
        if self._reader is None:
            self._builder.check_same(self.store)
            self._reader = reader_at(self._topic, self.store, self._partitions)
        read = 0
        for batch in self._reader.poll(timeout):
            number = batch.tier_partition
            kept, dropped = self._interest.split(number, batch.entries)
            anchor = batch.anchor(batch.following)
            seconds = self.store.apply(number, kept, batch.following, batch.epoch, dropped, anchor)
            read += len(batch.entries)
            self._progress.moved()
            for second in seconds:
                self._listener(SecondValueSeen(number, second.key, second.first_position, second.second_position))
            people = any(said_by_people(entry.key) for entry in batch.entries)
            if kept or people:
                partitions = self._interest.named(number, kept)
                self._listener(FactsApplied(number, len(kept), batch.following, partitions, people))
        return read

    def _check_topic_id(self) -> None:
        now = self._clock.monotonic()
        if now - self._checked_topic_id >= TOPIC_ID_CHECK_S:
            self._checked_topic_id = now
            self._builder.check_topic_id()
            self._builder.check_same(self.store)

    def _replace(self, reason: str) -> None:
        """Replace the view by a new one that was built up to ends captured now. Close and delete the old view."""
        self._close_reader()
        self._listener(ViewRebuilt(reason))
        fresh = self._builder.rebuild(self._as_of)
        with self._applied:
            old, self._store = self._store, fresh
            self.lost, self._unproven = None, True
            self._outdate()
            self._applied.notify_all()
        if old is not None:
            old.close()
        self._generations.clean()

    def _lose(self, reason: str) -> None:
        """Mark the view as lost. It does not count as fresh for any caller until it is rebuilt."""
        with self._applied:
            self.lost = self.lost or reason
            self._outdate()

    def _outdate(self) -> None:
        """Forget which tier-state partitions were fresh. The caller must hold ``_applied``."""
        self._generation += 1
        self._progress.moves += 1
        self._captured.clear()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
