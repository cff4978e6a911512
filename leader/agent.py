"""The agent's loop: reconcile what the disk hosts with what is being worked on, and hand partitions to a pool.

Partitions are independent; one act at a time per partition, ``copy.concurrency`` acts at once per agent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ..state.errors import TierstateError
from ..state.ids import TopicIdPartition
from .partition_worker import PartitionWorker
from .status import StatusBoard

RECONCILE_S = 1.0


@dataclass(frozen=True, slots=True)
class Hosted:
    """A partition on this broker's disks that the settings include."""

    name: str
    leads: bool


HostedPartitions = Callable[[], dict[TopicIdPartition, Hosted]]
NewWorker = Callable[[TopicIdPartition, str], PartitionWorker]


class Agent:
    """``hosted`` is asked at every reconcile; ``new_worker`` makes the worker of a partition."""

    def __init__(self, hosted: HostedPartitions, new_worker: NewWorker, board: StatusBoard, concurrency: int) -> None:
        self._hosted, self._new_worker, self._board = hosted, new_worker, board
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="act")
        self._workers: dict[TopicIdPartition, PartitionWorker] = {}
        self._running: dict[TopicIdPartition, Future[bool]] = {}
        self._stopping = threading.Event()
        self.last_error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; acts in progress are finished first. Raises what only a bug raises."""
        while not stop.is_set():
            self.reconcile()
            stop.wait(RECONCILE_S)
        self.close()

    def run_once(self, stop: threading.Event) -> None:
        """Until nothing is left to do, or ``stop``."""
        while not stop.is_set():
            self.reconcile()
            worked = [future.result() for future in list(self._running.values())]
            if not any(worked):
                break
        self.close()

    def reconcile(self) -> None:
        """Notice new and gone partitions; let every idle one go on. Raises what a worker's bug raised."""
        try:
            hosted = self._hosted()
            self.last_error = None
        except TierstateError as error:  # a disk or a broker that is away for a while: nothing is decided meanwhile
            self.last_error = str(error)
            return
        for partition in [known for known in self._workers if known not in hosted]:
            del self._workers[partition]
            self._board.drop(partition)
        for partition, found in hosted.items():
            running = self._running.get(partition)
            if running is not None:
                if not running.done():
                    continue
                running.result()
            worker = self._workers.get(partition)
            if worker is None:
                worker = self._workers[partition] = self._new_worker(partition, found.name)
            if found.leads:
                self._running[partition] = self._pool.submit(self._work, worker)
            else:
                self._running.pop(partition, None)
                worker.rest()

    def _work(self, worker: PartitionWorker) -> bool:
        worked = False
        while not self._stopping.is_set() and worker.advance():
            worked = True
        return worked

    def close(self) -> None:
        """Stop after the acts in progress."""
        self._stopping.set()
        self._pool.shutdown(wait=True)
