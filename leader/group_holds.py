"""Which offsets consumer groups still need, so that trimming does not take them away.

Kafka silently resets a consumer without the proxy that falls below the local start. A group needs its committed offset;
a group with an assigned member and no commit needs the local start. A group no longer counts if it has unread records
but did not move for more than ``trim.group_hold_max`` seconds. This bounds how long an abandoned group keeps disk space
in use. It takes no records from a group that still reads, however slowly. A restarted agent begins to wait again.
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
    """Records since when each group has had the same committed offset. Thread-safe."""

    def __init__(self, policy: GroupPolicy, clock: Clock) -> None:
        self._policy, self._clock = policy, clock
        self._lock = threading.Lock()
        self._standing: dict[tuple[str, int], dict[str, tuple[Offset | None, float]]] = {}

    def unknown(self, groups: TopicGroups | None) -> str | None:
        """Return why the listing may lack groups that are not excluded; None if it is complete."""
        return "no broker listed them" if groups is None else groups.why_incomplete(self._policy.ignores)

    def holds(
        self, topic: str, partition: int, groups: TopicGroups | None, bounds: LocalBounds
    ) -> Mapping[str, Offset] | None:
        """Return the lowest offset each group still needs; None if not all groups are known, which prevents trims."""
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
