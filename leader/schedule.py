"""When each partition is looked at next: at once when something calls for it, otherwise less and less often.

A call (a segment rolled, a fact landed, leadership or configuration changed) is a hint and may be lost; looks come
anyway. The wait for the next look is half of the time since the last event. So whatever falls due some time after an
event (a delay, a grace, a retention) is noticed late by at most half of that time. The wait is never longer than
`LONGEST_S`, which is how often Kafka itself checks its retention. Partitions of one group are then looked at together.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..runtime.listener import Event, FactsApplied, ViewRebuilt
from ..state.ids import TopicIdPartition

SHORTEST_S = 1.0
WAITING_S = 5.0
"""The longest wait after a failure, or while a transaction keeps a rolled segment from being copied."""
LONGEST_S = 300.0
BLIND_S = 30.0
"""The longest wait where the operating system does not report what changes on the disks."""
_SPREAD = 0.6180339887498949
"""The golden section: multiples of it, modulo 1, are evenly spread however many there are."""


@dataclass(slots=True)
class _Due:
    """``happened``: when the last event was. ``at``: when the next look is due; None while one is under way."""

    happened: float
    at: float | None


class Schedule:
    """A thread-safe schedule in monotonic seconds. ``group``: partitions with one number share the cost of a look."""

    def __init__(self, clock: Clock, group: Callable[[TopicIdPartition], int]) -> None:
        self._clock, self._group = clock, group
        self._lock = threading.Lock()
        self._dues: dict[TopicIdPartition, _Due] = {}
        self._order: list[tuple[float, TopicIdPartition]] = []
        self._called: set[TopicIdPartition] = set()
        self._waiting: set[TopicIdPartition] = set()
        self.longest_s = LONGEST_S

    def follow(self, partition: TopicIdPartition) -> None:
        """Look at the partition from now on, the first time at once."""
        with self._lock:
            self._dues.setdefault(partition, _Due(self._clock.monotonic(), None))
            self._called.add(partition)

    def drop(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._dues.pop(partition, None)
            self._called.discard(partition)
            self._waiting.discard(partition)

    def call(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Look at these partitions again, also after a look that is under way: something happened to them."""
        with self._lock:
            self._called.update(each for each in partitions if each in self._dues)

    def call_all(self) -> None:
        """Look at all partitions again: it is not known what happened to which."""
        with self._lock:
            self._called.update(self._dues)

    def listen(self, event: Event) -> None:
        """Look at the partitions of facts that land. This is a `Listener`."""
        if isinstance(event, FactsApplied):
            self.call(event.partitions)
        elif isinstance(event, ViewRebuilt):
            self.call_all()

    def wait_for_it(self, partition: TopicIdPartition, waits: bool) -> None:
        """Record whether the partition waits for something that no call will announce."""
        with self._lock:
            (self._waiting.add if waits else self._waiting.discard)(partition)

    @property
    def called(self) -> bool:
        """Return whether something calls for a look now."""
        with self._lock:
            return bool(self._called)

    def due(self, busy: Collection[TopicIdPartition], at_most: int) -> list[TopicIdPartition]:
        """Return up to ``at_most`` partitions to look at now, in order. The ``busy`` ones and others wait."""
        now = self._clock.monotonic()
        with self._lock:
            chosen = set(sorted(each for each in self._called if each not in busy)[:at_most])
            self._called -= chosen
            for partition in chosen:
                self._dues[partition].happened = now
            while self._order and self._order[0][0] <= now and len(chosen) < at_most:
                at, partition = heapq.heappop(self._order)
                due = self._dues.get(partition)
                if due is not None and due.at == at:
                    chosen.add(partition)
            for partition in chosen:
                self._dues[partition].at = None
        return sorted(chosen)

    def acted(self, partition: TopicIdPartition) -> None:
        """Record that the look under way changed something in the partition."""
        with self._lock:
            if partition in self._dues:
                self._dues[partition].happened = self._clock.monotonic()

    def looked(self, partition: TopicIdPartition, failures: int) -> None:
        """Record that a look is over. ``failures``: how often in a row something failed."""
        now = self._clock.monotonic()
        with self._lock:
            due = self._dues.get(partition)
            if due is None:
                return
            due.at = now + self._wait(partition, now, due.happened, failures)
            heapq.heappush(self._order, (due.at, partition))

    def _wait(self, partition: TopicIdPartition, now: float, happened: float, failures: int) -> float:
        wait = max(SHORTEST_S, (now - happened) / 2)
        if failures:
            return SHORTEST_S if failures <= 3 else WAITING_S
        if partition in self._waiting:
            return min(wait, WAITING_S)
        if wait < self.longest_s:
            return wait
        phase = self._group(partition) * _SPREAD % 1 * self.longest_s
        return (phase - now) % self.longest_s or self.longest_s
