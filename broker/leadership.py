"""The leaders of partitions, and calls that follow a leader when it moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable, TimedOut, UnknownTopic
from ..state.ids import BrokerId
from .error_codes import LeaderMoved
from .raw import RawClient

Answer = TypeVar("Answer")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Leader:
    """A leader in the metadata, which may be stale on any broker: a hint, never a fence. ``epoch``: leader epoch."""

    broker: BrokerId
    epoch: LeaderEpoch | None


class Leadership:
    """The last known leaders, each kept until a caller reports that it moved. Thread-safe."""

    def __init__(self, raw: RawClient, clock: Clock) -> None:
        self._raw = raw
        self._clock = clock
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._lock = threading.Lock()

    def leader(self, topic: str, partition: int) -> Leader:
        """Return the leader. Raises UnknownTopic, LeaderMoved (during an election), AccessDenied, BrokerUnavailable."""
        with self._lock:
            leader = self._leaders.get((topic, partition))
        return leader or self._ask(topic, partition)

    def forget(self, topic: str, partition: int) -> None:
        """Forget the leader: the next call asks Kafka again."""
        with self._lock:
            self._leaders.pop((topic, partition), None)

    def on_leader(self, topic: str, partition: int, call: Callable[[BrokerId], Answer], timeout_s: float) -> Answer:
        """Return ``call(leader)``. If it fails, find the leader again and repeat, for at most ``timeout_s`` seconds.

        Only for calls that read. Only BrokerUnavailable and TimedOut lead to a repetition; else the error is raised.
        """
        deadline = self._clock.monotonic() + timeout_s
        pause = FIRST_PAUSE
        while True:
            try:
                return call(self.leader(topic, partition).broker)
            except (BrokerUnavailable, TimedOut):
                self.forget(topic, partition)
                if self._clock.monotonic() + pause >= deadline:
                    raise
            self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ask(self, topic: str, partition: int) -> Leader:
        answer = self._raw.metadata([topic]).topics.get(topic)
        if answer is None or answer.error is not None:
            raise answer.error if answer and answer.error else UnknownTopic("no such topic", topic=topic)
        state = answer.partitions.get(partition)
        if state is None:
            raise UnknownTopic("no such partition", topic=topic, partition=partition)
        if state.leader is None:
            raise LeaderMoved("the partition has no leader now", topic=topic, partition=partition)
        leader = Leader(state.leader, state.leader_epoch)
        with self._lock:
            self._leaders[topic, partition] = leader
        return leader
