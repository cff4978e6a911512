"""Which offsets consumer groups still need, so that trimming does not take them away.

A plain consumer that falls below the local start is silently reset. A group holds its committed offset; one that has an
assigned member and no commit holds the local start. A group that stands still before unread records for longer than
``trim.group_hold_max`` no longer counts. This bounds how long an abandoned group may hold disk, and never takes records
from a group that reads on, however slowly. The agent keeps the time in memory, so a new agent waits again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from ..broker.groups import TopicGroups
from ..runtime.clock import Clock
from ..state.offsets import Offset
from ..state.routing import LocalBounds


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """``[trim] respect_groups``, ``exclude_groups`` and ``group_hold_max`` in seconds."""

    respect: bool
    excluded: tuple[str, ...]
    hold_max: float

    def ignores(self, group: str) -> bool:
        return any(re.fullmatch(pattern, group) for pattern in self.excluded)


class GroupHolds:
    """Remembers since when each group holds its offset. Thread-safe."""

    def __init__(self, policy: GroupPolicy, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self._lock = threading.Lock()
        self._standing: dict[tuple[str, int], dict[str, tuple[Offset | None, float]]] = {}

    def unknown(self, groups: TopicGroups | None) -> str | None:
        """Return why not all groups that count are known; None when they are."""
        return "no broker listed them" if groups is None else groups.why_incomplete(self._policy.ignores)

    def holds(
        self, topic: str, partition: int, groups: TopicGroups | None, bounds: LocalBounds
    ) -> Mapping[str, Offset] | None:
        """Return the lowest offset each group still needs; None when not all are known: then nothing is trimmed."""
        if groups is None or self.unknown(groups) is not None:
            return None
        behind = {
            each.group: each.committed
            for each in groups.positions
            if each.partition == partition
            and not self._policy.ignores(each.group)
            and (each.committed is None or each.committed < bounds.high_watermark)
        }
        now = self._clock.monotonic()
        with self._lock:
            earlier = self._standing.get((topic, partition), {})
            current = {
                group: before if (before := earlier.get(group)) and before[0] == committed else (committed, now)
                for group, committed in behind.items()
            }
            self._standing[topic, partition] = current
        return {
            group: bounds.local_start if committed is None else committed
            for group, (committed, since) in current.items()
            if now - since <= self._policy.hold_max
        }
