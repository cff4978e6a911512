"""What an agent asks the broker before it decides: bounds, configuration, who still reads. Slow answers are cached.

Configuration is at most 30 s old (the tier-state topic's own 60 s), a group listing at most 5 minutes: a listing is
expensive on a busy cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ..broker.control import BrokerControl
from ..broker.groups import TopicGroups
from ..broker.topics import TopicConfig
from ..log.local_log import LocalLog
from ..runtime.clock import Clock
from ..state.errors import AccessDenied, Unavailable
from ..state.ids import BrokerId, TopicIdPartition
from .decide import Observed, refusal
from .group_holds import GroupHolds, GroupPolicy

CONFIG_AGE_S = 30.0
GROUPS_AGE_S = 300.0
DRIFT_AGE_S = 60.0

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
        topic_problems: Callable[[], list[str]] = list,
    ) -> None:
        self._broker, self._broker_id, self._log, self._respect = broker, broker_id, log, groups.respect
        self._configs = _Aged(clock, CONFIG_AGE_S, lambda topic: overrides(topic, broker.config(topic)))
        self._groups: _Aged[TopicGroups | None] = _Aged(clock, GROUPS_AGE_S, self._list_groups)
        self._holds = GroupHolds(groups, clock)
        self._drift = _Aged(clock, DRIFT_AGE_S, lambda _: _first_problem(topic_problems))

    def __call__(self, partition: TopicIdPartition, name: str) -> Observed:
        """Raises Fenced when the partition left the disk, BrokerUnavailable kinds."""
        bounds = self._broker.bounds(name, partition.partition, broker=self._broker_id)
        local = self._log.snapshot(partition, name)
        config = self._configs.get(name)
        if not self._respect or refusal(config) is not None:
            return Observed(local.segments, local.lineage, bounds, config, {}, self._drift.get(""))
        holds = self._holds.holds(name, partition.partition, self._groups.get(name), bounds)
        return Observed(local.segments, local.lineage, bounds, config, holds, self._drift.get(""))

    def _list_groups(self, topic: str) -> TopicGroups | None:
        """None when Kafka did not answer: an incomplete listing means no trim."""
        try:
            return self._broker.groups(topic)
        except (Unavailable, AccessDenied):
            return None


def _first_problem(topic_problems: Callable[[], list[str]]) -> str | None:
    """None when the tier-state topic is as it must be; not being able to look is a problem too."""
    try:
        return next(iter(topic_problems()), None)
    except (Unavailable, AccessDenied) as error:
        return str(error)
