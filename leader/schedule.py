"""Schedule the looks at each partition: at once after an event, otherwise less and less often.

A *look* is one check of a partition for work. A call (a segment rolled, a fact landed, leadership or configuration
changed) makes a look due at once. Calls may be lost, so looks also come without them. The wait for the next look is
half of the time since the last event. So the end of a period that began with an event (a delay, a grace, a retention)
is noticed late by at most half of the period. The wait is never longer than `LONGEST_S`, the interval at which Kafka
checks its retention. Partitions of one group with this wait are looked at together.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..runtime.listener import Event, FactsApplied, ViewRebuilt
from ..state.errors import TierstateError
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
    """``happened``: time of the last event. ``at``: when the next look is due; None while a look is under way."""

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
        """Schedule the partition from now on. Its first look is due at once."""
        with self._lock:
            self._dues.setdefault(partition, _Due(self._clock.monotonic(), None))
            self._called.add(partition)

    def drop(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._dues.pop(partition, None)
            self._called.discard(partition)
            self._waiting.discard(partition)

    def call(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Make looks at these partitions due at once, or after the looks under way: something happened to them."""
        with self._lock:
            self._called.update(each for each in partitions if each in self._dues)

    def call_all(self) -> None:
        """Make looks at all partitions due at once: it is not known which of them changed."""
        with self._lock:
            self._called.update(self._dues)

    def listen(self, event: Event) -> None:
        """Make looks due for the partitions of new facts. This method is a `Listener`."""
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
        """Return whether a look that was called for has not begun."""
        with self._lock:
            return bool(self._called)

    def due(self, busy: Collection[TopicIdPartition], at_most: int) -> list[TopicIdPartition]:
        """Return, sorted, up to ``at_most`` partitions whose looks begin now. Called ``busy`` partitions stay due."""
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
        """Record that a look is over. ``failures``: the number of failures in a row."""
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


MAX_BACKOFF_S = 300.0


def backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: 1 s three times, then 5 s, doubled up to 5 min."""
    return 1.0 if failures <= 3 else min(MAX_BACKOFF_S, 5.0 * 2.0 ** min(failures - 4, 10))


class Backoff:
    """The failures in a row of one kind of operation, and whether it is too early to try again.

    An operation that failed for lack of something (the store, a permission) is retried as soon as that is back.
    """

    __slots__ = ("_clock", "_error", "_not_before", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock, self.count, self._not_before = clock, 0, 0.0
        self._error: TierstateError | None = None

    def add(self, error: TierstateError) -> None:
        self.count += 1
        self._not_before = self._clock.monotonic() + backoff(self.count)
        self._error = error

    def returned(self, kind: type[TierstateError]) -> None:
        """End the wait if the last error has this type, because the cause was removed. `count` stays the same."""
        if isinstance(self._error, kind):
            self._not_before = 0.0

    def clear(self) -> None:
        self.count, self._not_before = 0, 0.0

    @property
    def waiting(self) -> bool:
        return self.count > 0 and self._clock.monotonic() < self._not_before
