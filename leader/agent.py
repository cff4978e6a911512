"""The agent's loop: reconcile what the disk hosts with what is being worked on, and hand what is due to a pool.

Partitions are independent; one act at a time per partition, ``copy.concurrency`` acts at once per agent. A partition
with a long backlog goes to the end of the queue after every few acts, so that it never keeps the others waiting; and
after every act while one waits that is not behind (`turn_queue.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ..runtime.heartbeat import UNWATCHED, Heart, Heartbeats
from ..state.errors import TierstateError, Unavailable
from ..state.ids import TopicIdPartition
from .attention import Attention
from .discovery import Hosted
from .partition_worker import PartitionWorker
from .status import StatusBoard
from .turn_queue import TurnQueue

RECONCILE_S = 0.25
AGAIN_S = 1.0
LOOKS_AT_ONCE = 500
"""So many partitions are asked about together, and looked at before what was answered is old."""
ACTS_A_TURN = 8
CATCHING_UP = 2
"""More rolled segments than so many that are not copied are a backlog."""
ONCE_TRIES = 3
"""How often in a row `run_once` finds nothing but failures before it gives up."""


HostedPartitions = Callable[[], Mapping[TopicIdPartition, Hosted]]
"""It may answer the very same object while nothing changed."""
Ahead = Callable[[Mapping[TopicIdPartition, str], Collection[str]], Collection[str]]
"""Partitions that are about to be looked at, and the topics of all that are led -> topics whose settings changed."""
NewWorker = Callable[[TopicIdPartition, str], PartitionWorker]


def nothing_ahead(due: Mapping[TopicIdPartition, str], topics: Collection[str]) -> Collection[str]:
    """Each look asks for itself."""
    return ()


class Agent:
    """``hosted`` is asked at every reconcile; ``new_worker`` makes the worker of a partition. Runs once."""

    def __init__(
        self,
        hosted: HostedPartitions,
        new_worker: NewWorker,
        board: StatusBoard,
        concurrency: int,
        attention: Attention,
        ahead: Ahead = nothing_ahead,
        heartbeats: Heartbeats = UNWATCHED,
    ) -> None:
        self._hosted, self._new_worker, self._board = hosted, new_worker, board
        self._attention, self._ahead, self._heartbeats = attention, ahead, heartbeats
        self._known: Mapping[TopicIdPartition, Hosted] = {}
        self._led_topics: frozenset[str] = frozenset()
        self._resting: set[TopicIdPartition] = set()
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="act")
        self._workers: dict[TopicIdPartition, PartitionWorker] = {}
        self._turns = threading.Condition()
        self._queue: TurnQueue[PartitionWorker] = TurnQueue()
        self._busy: set[TopicIdPartition] = set()
        self._acts = 0
        self._bug: BaseException | None = None
        self._away: TierstateError | None = None

    @property
    def last_error(self) -> str | None:
        """Why nothing can be decided now: a disk or a cluster that does not answer."""
        away = self._away
        return str(away) if away else None

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; acts in progress are finished first. Raises what only a bug raises."""
        try:
            with self._heartbeats.of("agent") as heart:
                while not stop.is_set():
                    self.reconcile(stop)
                    heart.rest(stop, RECONCILE_S)
        finally:
            self._pool.shutdown(wait=True)
        self._raise_bug()

    def run_once(self, stop: threading.Event) -> None:
        """Until nothing is left to do, or ``stop``. Raises the error that kept it from going on, once tried again."""
        tries = ONCE_TRIES
        try:
            while tries and not stop.is_set():
                before = self._acts
                self._attention.call_all()
                self.reconcile(stop)
                while self.wait_idle() and self._attention.called and not stop.is_set() and self._away is None:
                    self.reconcile(stop)
                if self._acts > before:
                    tries = ONCE_TRIES
                elif self._away is None and not any(worker.setbacks for worker in self._workers.values()):
                    break
                else:
                    tries -= 1
                    stop.wait(AGAIN_S)
        finally:
            self._pool.shutdown(wait=True)
        self._raise_bug()
        if self._away is not None:
            raise self._away
        failing = [worker for worker in self._workers.values() if worker.setbacks]
        if failing and not stop.is_set():
            names = ",".join(f"{worker.name}-{worker.partition.partition}" for worker in failing)
            raise Unavailable("partitions are not done", partitions=names, because=failing[0].last_error)

    def reconcile(self, stop: threading.Event) -> None:
        """Notice new and gone partitions; let those go on that are due. Raises what a worker's bug raised."""
        self._raise_bug()
        try:
            hosted = self._hosted()
        except TierstateError as error:  # a disk or a broker that is away for a while: nothing is decided meanwhile
            self._away = error
            return
        self._away = None
        if hosted is not self._known:
            self._follow(hosted)
        self._rest()
        with self._turns:
            due = self._attention.due(self._busy, LOOKS_AT_ONCE)
        changed = self._ahead({partition: hosted[partition].name for partition in due}, self._led_topics)
        if changed:
            self._attention.call(partition for partition, found in hosted.items() if found.name in changed)
        for partition in due:
            worker = self._worker(partition, hosted[partition].name)
            worker.barred = hosted[partition].barred
            with self._turns:
                self._busy.add(partition)
            self._line_up(worker, stop)

    def _follow(self, hosted: Mapping[TopicIdPartition, Hosted]) -> None:
        """From now on: whom to look at, and who is to rest."""
        before, self._known = self._known, hosted
        for partition in hosted.keys() | before.keys():
            found = hosted.get(partition)
            if found == before.get(partition):
                continue
            if found is not None and found.leads:
                self._resting.discard(partition)
                self._attention.follow(partition)
            else:
                self._attention.drop(partition)
                self._resting.add(partition)
        self._led_topics = frozenset(found.name for found in hosted.values() if found.leads)

    def _rest(self) -> None:
        """Whom this broker does not lead, once nobody works on it."""
        with self._turns:
            idle = self._resting - self._busy
        for partition in sorted(idle):
            self._resting.discard(partition)
            found = self._known.get(partition)
            worker = self._workers.get(partition) if found is None else self._worker(partition, found.name)
            if worker is not None:
                worker.rest()
            if found is None:
                self._workers.pop(partition, None)
                self._board.drop(partition)

    def _worker(self, partition: TopicIdPartition, name: str) -> PartitionWorker:
        worker = self._workers.get(partition)
        if worker is None:
            worker = self._workers[partition] = self._new_worker(partition, name)
        return worker

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Until no partition is worked on; False when that took longer than ``timeout`` seconds."""
        with self._turns:
            return self._turns.wait_for(lambda: not self._busy, timeout)

    def _line_up(self, worker: PartitionWorker, stop: threading.Event) -> None:
        """Raises RuntimeError when the pool is shut down."""
        self._queue.put(worker, catching_up=worker.behind > CATCHING_UP)
        try:
            self._pool.submit(self._next, stop)
        except RuntimeError:
            self._queue.remove(worker)
            raise

    def _next(self, stop: threading.Event) -> None:
        """As many of these are in the pool as workers wait; which of them goes on is decided now."""
        worker = self._queue.take()
        with self._heartbeats.of("acts", f"{worker.name}-{worker.partition.partition}") as heart:
            self._turn(worker, heart, stop)

    def _turn(self, worker: PartitionWorker, heart: Heart, stop: threading.Event) -> None:
        """A few acts; then, while there is more to do, the end of the queue."""
        more = False
        try:
            for _ in range(ACTS_A_TURN):
                heart.beat()
                # whose leadership went rests as soon as its act is over, however much it has to do
                more = not stop.is_set() and worker.partition not in self._resting and worker.advance()
                if not more:
                    break
                self._attention.acted(worker.partition)
                with self._turns:
                    self._acts += 1
                if worker.behind > CATCHING_UP and self._queue.fresh_waits:
                    break
        except BaseException as error:
            more, self._bug = False, error
        if more:
            with suppress(RuntimeError):  # the pool was shut down between the acts of this turn and the next one
                self._line_up(worker, stop)
                return
        self._attention.looked(worker.partition, worker.setbacks)
        with self._turns:
            self._busy.discard(worker.partition)
            self._turns.notify_all()

    def _raise_bug(self) -> None:
        if self._bug is not None:
            raise self._bug
