"""The agent's loop: compare the partitions on the disks with the workers, and hand due workers to a thread pool.

Partitions are independent: one operation at a time per partition, ``copy.concurrency`` at once per agent. A partition
with a long backlog goes to the end of the queue after a few operations, so that it never keeps the others waiting.
While a partition without a backlog waits, it goes there after every operation (`ReadyQueue`).

A *look* is one check of a partition for work. Looks that are due only because time passed share one thread of the pool,
because most of them find nothing to do. Several threads would compete for Python's global interpreter lock at every
file, which takes four times the processor time. All threads are used for looks that still wait at the next reconcile,
and for looks after an event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from ..runtime.watchdog import alive, go_round, inherited, loop
from ..state.errors import TierstateError, Unavailable
from ..state.ids import TopicIdPartition
from .discovery import Hosted
from .partition_worker import PartitionWorker
from .schedule import Schedule
from .status import StatusBoard

RECONCILE_S = 0.25
AGAIN_S = 1.0
LOOKS_AT_ONCE = 500
"""The number of partitions in one request: few enough to look at all of them before the answers are too old."""
ACTS_A_TURN = 8
CATCHING_UP = 2
"""A partition has a backlog when more rolled segments than this are not copied."""
ONCE_TRIES = 3
"""The number of rounds in a row with only failures after which `run_once` gives up."""


HostedPartitions = Callable[[], Mapping[TopicIdPartition, Hosted]]
"""Returns the partitions on the disks. May return the same object while nothing changed."""
Ahead = Callable[[Mapping[TopicIdPartition, str], Collection[str]], Collection[str]]
"""Requests data in advance for the partitions that are looked at next; also gets the topics of all led partitions.
Returns the topics whose configuration changed."""
NewWorker = Callable[[TopicIdPartition, str], PartitionWorker]


class Agent:
    """Runs a worker for each partition that ``hosted`` returns. ``hosted`` is called at every reconcile.

    ``new_worker`` creates the worker of a partition. An instance runs once.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        new_worker: NewWorker,
        board: StatusBoard,
        concurrency: int,
        schedule: Schedule,
        ahead: Ahead = lambda due, topics: (),
    ) -> None:
        self._hosted, self._new_worker, self._board = hosted, new_worker, board
        self._schedule, self._ahead = schedule, ahead
        self._entries: Mapping[TopicIdPartition, Hosted] = {}
        self._led_topics: frozenset[str] = frozenset()
        self._resting: set[TopicIdPartition] = set()
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="operation")
        self._workers: dict[TopicIdPartition, PartitionWorker] = {}
        self._turns = threading.Condition()
        self._queue: ReadyQueue[PartitionWorker] = ReadyQueue()
        self._concurrency, self._hands = concurrency, 0
        self._busy: set[TopicIdPartition] = set()
        self._acts = 0
        self._over = False
        self._returned: deque[type[TierstateError]] = deque()
        self._bug: BaseException | None = None
        self._away: TierstateError | None = None

    @property
    def last_error(self) -> str | None:
        """Return why nothing can be decided now: a disk or the cluster does not answer. None if both answer."""
        away = self._away
        return str(away) if away else None

    def returned(self, *kinds: type[TierstateError]) -> None:
        """Record that the causes of errors of these kinds were removed. Thread-safe.

        The next `reconcile` makes a look at every failing partition due at once.
        """
        self._returned.extend(kinds)

    @property
    def led_topics(self) -> frozenset[str]:
        """Return the topics of partitions that this broker leads and that are not barred, as of the last reconcile."""
        return frozenset(entry.name for entry in self._entries.values() if entry.leads and entry.barred is None)

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set, then finish the operations in progress. Raises only errors that are bugs."""
        try:
            go_round("agent", stop, lambda: self.reconcile(stop), lambda: RECONCILE_S)
        finally:
            self._finish()
        self._raise_bug()

    def run_once(self, stop: threading.Event, upkeep: Callable[[], None] = lambda: None) -> None:
        """Work until nothing is left to do, or until ``stop`` is set. ``upkeep`` is called when nothing is left.

        ``upkeep`` is called again if operations followed it. After `ONCE_TRIES` rounds with only failures, raises the
        error of the disks or the cluster, or Unavailable with the names of the failing partitions.
        """
        tries, kept_up = ONCE_TRIES, -1
        try:
            while tries and not stop.is_set():
                before = self._acts
                self._schedule.call_all()
                self.reconcile(stop)
                while self.wait_idle() and self._schedule.called and not stop.is_set() and self._away is None:
                    self.reconcile(stop)
                if self._acts > before:
                    tries = ONCE_TRIES
                elif self._away is None and not self._failing():
                    if kept_up == self._acts:
                        break
                    kept_up = self._acts
                    upkeep()
                else:
                    tries -= 1
                    stop.wait(AGAIN_S)
        finally:
            self._finish()
        self._raise_bug()
        if self._away is not None:
            raise self._away
        failing = self._failing()
        if failing and not stop.is_set():
            names = ",".join(f"{worker.name}-{worker.partition.partition}" for worker in failing)
            raise Unavailable("partitions are not done", partitions=names, because=failing[0].last_error)

    def _failing(self) -> list[PartitionWorker]:
        return [worker for worker in self._workers.values() if worker.failures]

    def _finish(self) -> None:
        self._over = True
        self._pool.shutdown(wait=True)

    def reconcile(self, stop: threading.Event) -> None:
        """Add new partitions, drop removed ones, and start the due looks. Raises the exception of a bug in a worker."""
        self._raise_bug()
        try:
            hosted = self._hosted()
        except TierstateError as error:  # a disk or broker does not answer: nothing is decided until it does
            self._away = error
            return
        self._away = None
        if hosted is not self._entries:
            self._follow(hosted)
        self._rest()
        if returned := [self._returned.popleft() for _ in range(len(self._returned))]:
            failing = self._failing()
            for worker in failing:
                worker.returned(returned)
            self._schedule.call(worker.partition for worker in failing)
        urgent = self._schedule.called or self._queue.waits > 0
        with self._turns:
            due = self._schedule.due(self._busy, LOOKS_AT_ONCE)
        changed = self._ahead({partition: hosted[partition].name for partition in due}, self._led_topics)
        if changed:
            self._schedule.call(partition for partition, entry in hosted.items() if entry.name in changed)
        with self._turns:  # those that wait for a thread or have one
            busy = [self._workers[each] for each in self._busy if each in self._workers]
        for worker in busy:
            if not worker.look_at_local_log():
                break  # wait only once for a broker that does not answer
        for partition in due:
            worker = self._worker(partition, hosted[partition].name)
            worker.barred = hosted[partition].barred
            with self._turns:
                self._busy.add(partition)
            self._line_up(worker)
        self._lend_hands(urgent, stop)

    def _follow(self, hosted: Mapping[TopicIdPartition, Hosted]) -> None:
        """Store the hosted partitions. Schedule those that this broker leads, and mark all others to rest."""
        before, self._entries = self._entries, hosted
        for partition in hosted.keys() | before.keys():
            entry = hosted.get(partition)
            if entry == before.get(partition):
                continue
            if entry is not None and entry.leads:
                self._resting.discard(partition)
                self._schedule.follow(partition)
            else:
                self._schedule.drop(partition)
                self._resting.add(partition)
        self._led_topics = frozenset(entry.name for entry in hosted.values() if entry.leads)

    def _rest(self) -> None:
        """End the work on partitions that this broker does not lead, as soon as no thread works on them."""
        with self._turns:
            idle = self._resting - self._busy
        for partition in sorted(idle):
            self._resting.discard(partition)
            entry = self._entries.get(partition)
            worker = self._workers.get(partition) if entry is None else self._worker(partition, entry.name)
            if worker is not None:
                worker.rest()
            if entry is None:
                self._workers.pop(partition, None)
                self._board.drop(partition)

    def _worker(self, partition: TopicIdPartition, name: str) -> PartitionWorker:
        worker = self._workers.get(partition)
        if worker is None:
            worker = self._workers[partition] = self._new_worker(partition, name)
        return worker

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no partition is worked on. Return False if that took longer than ``timeout`` seconds."""
        with self._turns:
            return self._turns.wait_for(lambda: not self._busy, timeout)

    def _line_up(self, worker: PartitionWorker) -> None:
        self._queue.put(worker, catching_up=worker.behind > CATCHING_UP)

    def _lend_hands(self, urgent: bool, stop: threading.Event) -> None:
        """Start threads for waiting workers: all free threads if ``urgent``, otherwise one unless one already runs."""
        with self._turns:
            most = self._concurrency if urgent else 1
            threads = max(0, min(self._queue.waits, most - self._hands))
            self._hands += threads
        for _ in range(threads):
            self._pool.submit(inherited(self._work), stop)

    def _work(self, stop: threading.Event) -> None:
        while (worker := self._next()) is not None:
            with loop("operations", f"{worker.name}-{worker.partition.partition}"):
                self._turn(worker, stop)

    def _next(self) -> PartitionWorker | None:
        with self._turns:  # a worker that is queued concurrently is taken here, or another thread is started for it
            if self._queue.waits:
                return self._queue.take()
            self._hands -= 1
        return None

    def _turn(self, worker: PartitionWorker, stop: threading.Event) -> None:
        """Run up to `ACTS_A_TURN` operations. Then put the worker at the end of the queue if there is more to do."""
        more = False
        try:
            for _ in range(ACTS_A_TURN):
                alive()
                # a partition that lost its leadership rests after its current operation, however much is left to do
                over = self._over or stop.is_set() or worker.partition in self._resting
                more = not over and worker.advance()
                if not more:
                    break
                self._schedule.acted(worker.partition)
                with self._turns:
                    self._acts += 1
                if worker.behind > CATCHING_UP and self._queue.fresh_waits:
                    break
        except BaseException as error:
            more, self._over, self._bug = False, True, error
        if more:
            self._line_up(worker)
            return
        self._schedule.looked(worker.partition, worker.failures)
        with self._turns:
            self._busy.discard(worker.partition)
            self._turns.notify_all()

    def _raise_bug(self) -> None:
        if self._bug is not None:
            raise self._bug


W = TypeVar("W")
FRESH_IN_A_ROW = 8
"""The number of fresh partitions that go first while one that catches up waits."""


class ReadyQueue(Generic[W]):
    """The workers that wait for a thread. Fresh partitions come before those that catch up. Thread-safe; never blocks.

    The next segment of a partition that is hours behind is not urgent. The segment of a fresh partition has just
    rolled, and readers and the disk wait for its copy. Each kind is served first come, first served. After
    `FRESH_IN_A_ROW` fresh partitions one that catches up has a turn: otherwise a backlog would last as long as the
    agent is busy.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: deque[W] = deque()
        self._behind: deque[W] = deque()
        self._in_a_row = 0

    def put(self, worker: W, *, catching_up: bool) -> None:
        with self._lock:
            (self._behind if catching_up else self._fresh).append(worker)

    def take(self) -> W:
        """Return the next worker. Raises IndexError when none waits."""
        with self._lock:
            if self._fresh and not (self._behind and self._in_a_row >= FRESH_IN_A_ROW):
                self._in_a_row += 1
                return self._fresh.popleft()
            self._in_a_row = 0
            return self._behind.popleft()

    @property
    def waits(self) -> int:
        """Return the number of waiting workers."""
        return len(self._fresh) + len(self._behind)

    @property
    def fresh_waits(self) -> bool:
        """Return whether a fresh worker waits. Then a worker that catches up stops after its current operation."""
        return bool(self._fresh)
