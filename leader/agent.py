"""The agent's loop: reconcile what the disk hosts with what is being worked on, and hand partitions to a pool.

Partitions are independent; one act at a time per partition, ``copy.concurrency`` acts at once per agent. A partition
with a long backlog goes to the end of the queue after every few acts, so that it never keeps the others waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from ..state.errors import TierstateError, Unavailable
from ..state.ids import TopicIdPartition
from .partition_worker import PartitionWorker
from .status import StatusBoard

RECONCILE_S = 1.0
ACTS_A_TURN = 8
ONCE_TRIES = 3
"""How often in a row `run_once` finds nothing but failures before it gives up."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A partition on this broker's disks that the settings include."""

    name: str
    leads: bool


HostedPartitions = Callable[[], dict[TopicIdPartition, Hosted]]
NewWorker = Callable[[TopicIdPartition, str], PartitionWorker]


class Agent:
    """``hosted`` is asked at every reconcile; ``new_worker`` makes the worker of a partition. Runs once."""

    def __init__(self, hosted: HostedPartitions, new_worker: NewWorker, board: StatusBoard, concurrency: int) -> None:
        self._hosted, self._new_worker, self._board = hosted, new_worker, board
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="act")
        self._workers: dict[TopicIdPartition, PartitionWorker] = {}
        self._turns = threading.Condition()
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
            while not stop.is_set():
                self.reconcile(stop)
                stop.wait(RECONCILE_S)
        finally:
            self._pool.shutdown(wait=True)
        self._raise_bug()

    def run_once(self, stop: threading.Event) -> None:
        """Until nothing is left to do, or ``stop``. Raises the error that kept it from going on, once tried again."""
        tries = ONCE_TRIES
        try:
            while tries and not stop.is_set():
                before = self._acts
                self.reconcile(stop)
                self.wait_idle()
                if self._acts > before:
                    tries = ONCE_TRIES
                elif self._away is None and not any(worker.setbacks for worker in self._workers.values()):
                    break
                else:
                    tries -= 1
                    stop.wait(RECONCILE_S)
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
        """Notice new and gone partitions; let every idle one go on. Raises what a worker's bug raised."""
        self._raise_bug()
        try:
            hosted = self._hosted()
        except TierstateError as error:  # a disk or a broker that is away for a while: nothing is decided meanwhile
            self._away = error
            return
        self._away = None
        with self._turns:
            idle = (hosted.keys() | self._workers.keys()) - self._busy
        for partition in sorted(idle):
            found = hosted.get(partition)
            worker = self._workers.get(partition)
            if worker is None and found is not None:
                worker = self._workers[partition] = self._new_worker(partition, found.name)
            if worker is None:
                continue
            if found is not None and found.leads:
                with self._turns:
                    self._busy.add(partition)
                self._pool.submit(self._turn, worker, stop)
                continue
            worker.rest()
            if found is None:
                del self._workers[partition]
                self._board.drop(partition)

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Until no partition is worked on; False when that took longer than ``timeout`` seconds."""
        with self._turns:
            return self._turns.wait_for(lambda: not self._busy, timeout)

    def _turn(self, worker: PartitionWorker, stop: threading.Event) -> None:
        """A few acts; then, while there is more to do, the end of the queue."""
        more = False
        try:
            for _ in range(ACTS_A_TURN):
                more = not stop.is_set() and worker.advance()
                if not more:
                    break
                with self._turns:
                    self._acts += 1
        except BaseException as error:
            more, self._bug = False, error
        if more:
            with suppress(RuntimeError):  # the pool was shut down between the acts of this turn and the next one
                self._pool.submit(self._turn, worker, stop)
                return
        with self._turns:
            self._busy.discard(worker.partition)
            self._turns.notify_all()

    def _raise_bug(self) -> None:
        if self._bug is not None:
            raise self._bug
