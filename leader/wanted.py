"""Whose facts an agent keeps: of partitions on its broker's disks, and of tier-state partitions its broker leads."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..log.local_log import LocalLog
from ..state.ids import TopicIdPartition


class Wanted:
    """What was so at the last `refresh`; nothing before the first. Thread-safe: sets are replaced, never changed."""

    def __init__(self, log: LocalLog, led: Callable[[], Collection[int]]) -> None:
        self._log, self._led = log, led
        self._hosted: frozenset[TopicIdPartition] = frozenset()
        self._leads: frozenset[int] = frozenset()

    def keep(self, tier_partition: int, partition: TopicIdPartition) -> bool:
        """The custodian of a tier-state partition looks after everybody in it, whoever hosts them."""
        return tier_partition in self._leads or partition in self._hosted

    def refresh(self) -> bool:
        """Look again; whether anything changed. Raises what the disks and the cluster raise."""
        hosted, leads = frozenset(self._log.partitions()), frozenset(self._led())
        changed = (hosted, leads) != (self._hosted, self._leads)
        self._hosted, self._leads = hosted, leads
        return changed
