"""What an agent asks the broker before it decides: bounds, configuration, who still reads. Slow answers are cached.

Configuration is at most 30 s old, a group listing at most 5 minutes: a listing is expensive on a busy cluster.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..broker.control import BrokerControl
from ..broker.groups import TopicGroups
from ..broker.topics import TopicConfig
from ..log.local_log import LocalLog
from ..runtime.clock import Clock
from ..state.errors import Unavailable
from ..state.ids import BrokerId, TopicIdPartition
from ..state.offsets import Offset
from .decide import Observed

CONFIG_AGE_S = 30.0
GROUPS_AGE_S = 300.0

V = TypeVar("V")


class _Aged(Generic[V]):
    """Values by topic, asked again when they are older than ``age`` seconds."""

    def __init__(self, clock: Clock, age: float, ask: Callable[[str], V]) -> None:
        self._clock, self._age, self._ask = clock, age, ask
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, V]] = {}

    def get(self, topic: str) -> V:
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(topic)
        if known is not None and now - known[0] < self._age:
            return known[1]
        value = self._ask(topic)
        with self._lock:
            self._known[topic] = (now, value)
        return value


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """``[trim] respect_groups`` and ``exclude_groups``."""

    respect: bool
    excluded: tuple[str, ...]

    def ignores(self, group: str) -> bool:
        return any(re.fullmatch(pattern, group) for pattern in self.excluded)


class Observer:
    """Thread-safe. ``overrides`` are the settings' own, per topic: they replace Kafka's where they are shorter."""

    def __init__(
        self,
        broker: BrokerControl,
        broker_id: BrokerId,
        log: LocalLog,
        groups: GroupPolicy,
        overrides: Callable[[str, TopicConfig], TopicConfig],
        clock: Clock,
    ) -> None:
        self._broker, self._broker_id, self._log, self._policy = broker, broker_id, log, groups
        self._configs = _Aged(clock, CONFIG_AGE_S, lambda topic: overrides(topic, broker.config(topic)))
        self._groups: _Aged[TopicGroups | None] = _Aged(clock, GROUPS_AGE_S, self._list_groups)

    def __call__(self, partition: TopicIdPartition, name: str) -> Observed:
        """Raises Fenced when the partition left the disk, BrokerUnavailable kinds."""
        bounds = self._broker.bounds(name, partition.partition, broker=self._broker_id)
        local = self._log.snapshot(partition, name)
        return Observed(local.segments, bounds, self._configs.get(name), self._holds(name, partition.partition))

    def _holds(self, name: str, partition: int) -> Mapping[str, Offset] | None:
        if not self._policy.respect:
            return {}
        groups = self._groups.get(name)
        if groups is None or groups.why_incomplete(self._policy.ignores) is not None:
            return None
        holder = groups.holding(partition, self._policy.ignores)
        if holder is None:
            return {}
        return {holder.group: holder.committed if holder.committed is not None else Offset(0)}

    def _list_groups(self, topic: str) -> TopicGroups | None:
        """None when Kafka did not answer: an incomplete listing means no trim."""
        try:
            return self._broker.groups(topic)
        except Unavailable:
            return None
