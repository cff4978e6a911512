"""When each partition is looked at next: at once when something calls for it, else ever more seldom.

A call (a segment rolled, a fact landed, leadership or configuration changed) is a hint and may be lost; looks come
anyway. The wait until the next one is half of the time since something happened last, so that whatever falls due so
long after it (a delay, a grace, a retention) is noticed at most half as late again; and never longer than `LONGEST_S`,
which is how often Kafka itself looks at its own retention. Partitions of one group are then looked at together.
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
"""At most this long while something failed, or while a transaction keeps a rolled segment from being copied."""
LONGEST_S = 300.0
BLIND_S = 30.0
"""The longest wait where the system does not tell what changes on the disks."""
_SPREAD = 0.6180339887498949
"""The golden section: multiples of it, modulo 1, lie evenly however many there are."""


@dataclass(slots=True)
class _Due:
    """``happened``: when something happened last. ``at``: the next look; None while it is under way."""

    happened: float
    at: float | None


class Attention:
    """``group``: partitions of one number share what a look costs. Thread-safe. Seconds are the clock's monotonic."""

    def __init__(self, clock: Clock, group: Callable[[TopicIdPartition], int]) -> None:
        self._clock, self._group = clock, group
        self._lock = threading.Lock()
        self._dues: dict[TopicIdPartition, _Due] = {}
        self._order: list[tuple[float, TopicIdPartition]] = []
        self._called: set[TopicIdPartition] = set()
        self._waiting: set[TopicIdPartition] = set()
        self.longest_s = LONGEST_S

    def follow(self, partition: TopicIdPartition) -> None:
        """From now on it is looked at; first at once."""
        with self._lock:
            self._dues.setdefault(partition, _Due(self._clock.monotonic(), None))
            self._called.add(partition)

    def drop(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._dues.pop(partition, None)
            self._called.discard(partition)
            self._waiting.discard(partition)

    def call(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Something happened to them: look again, after the look that is under way too."""
        with self._lock:
            self._called.update(each for each in partitions if each in self._dues)

    def call_all(self) -> None:
        """Nobody knows what happened."""
        with self._lock:
            self._called.update(self._dues)

    def listen(self, event: Event) -> None:
        """A `Listener`: facts that land call for their partitions."""
        if isinstance(event, FactsApplied):
            self.call(event.partitions)
        elif isinstance(event, ViewRebuilt):
            self.call_all()

    def wait_for_it(self, partition: TopicIdPartition, waits: bool) -> None:
        """Whether it waits for something that nothing will call for."""
        with self._lock:
            (self._waiting.add if waits else self._waiting.discard)(partition)

    @property
    def called(self) -> bool:
        """Whether something calls for a look now."""
        with self._lock:
            return bool(self._called)

    def due(self, busy: Collection[TopicIdPartition], at_most: int) -> list[TopicIdPartition]:
        """Whom to look at now, in order; ``busy`` ones are left for later, and so is what is more than ``at_most``."""
        now = self._clock.monotonic()
        with self._lock:
            found = set(sorted(each for each in self._called if each not in busy)[:at_most])
            self._called -= found
            for each in found:
                self._dues[each].happened = now
            while self._order and self._order[0][0] <= now and len(found) < at_most:
                at, partition = heapq.heappop(self._order)
                due = self._dues.get(partition)
                if due is not None and due.at == at:
                    found.add(partition)
            for each in found:
                self._dues[each].at = None
        return sorted(found)

    def acted(self, partition: TopicIdPartition) -> None:
        """Something happened to it, by the look that is under way."""
        with self._lock:
            if partition in self._dues:
                self._dues[partition].happened = self._clock.monotonic()

    def looked(self, partition: TopicIdPartition, setbacks: int) -> None:
        """A look is over. ``setbacks``: how often in a row something failed."""
        now = self._clock.monotonic()
        with self._lock:
            due = self._dues.get(partition)
            if due is None:
                return
            due.at = now + self._wait(partition, now, due.happened, setbacks)
            heapq.heappush(self._order, (due.at, partition))

    def _wait(self, partition: TopicIdPartition, now: float, happened: float, setbacks: int) -> float:
        wait = max(SHORTEST_S, (now - happened) / 2)
        if setbacks:
            return SHORTEST_S if setbacks <= 3 else WAITING_S
        if partition in self._waiting:
            return min(wait, WAITING_S)
        if wait < self.longest_s:
            return wait
        phase = self._group(partition) * _SPREAD % 1 * self.longest_s
        return (phase - now) % self.longest_s or self.longest_s
