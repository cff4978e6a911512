"""Select the facts an agent keeps: of partitions on its broker's disks, and in tier-state partitions it leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..log.local_log import LocalLog
from ..state.ids import TopicIdPartition


class FactsKept:
    """The facts to keep, as of the last `refresh`; none before it. Thread-safe: sets are replaced, never changed."""

    def __init__(self, log: LocalLog, led: Callable[[], Collection[int]], *, everything: bool = False) -> None:
        """``everything``: keep all facts, because this process may have to work for any partition at any time."""
        self._log, self._led, self._everything = log, led, everything
        self._listed: Mapping[TopicIdPartition, str] | None = None
        self._hosted: frozenset[TopicIdPartition] = frozenset()
        self._leads: frozenset[int] = frozenset()

    def keep(self, tier_partition: int, partition: TopicIdPartition) -> bool:
        """Return whether to keep facts. The custodian of a tier-state partition needs those of all partitions in it."""
        return self._everything or tier_partition in self._leads or partition in self._hosted

    @property
    def leads(self) -> Collection[int]:
        """Return the tier-state partitions that this broker led at the last `refresh`."""
        return self._leads

    def refresh(self) -> bool:
        """Update the selection and return whether it changed. Raises the errors of the disks and the cluster."""
        # the agent lists the disks whenever a folder appears or disappears; listing 2,000 folders takes 10 ms
        partitions = self._log.partitions() if self._listed is None else self._log.listed()
        leads = frozenset(self._led())
        hosted = self._hosted if partitions is self._listed else frozenset(partitions)
        changed = (hosted, leads) != (self._hosted, self._leads)
        self._listed, self._hosted, self._leads = partitions, hosted, leads
        return changed
