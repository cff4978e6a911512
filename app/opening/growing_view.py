"""A view that grows by the partitions that are requested: reading one topic does not replay all the others.

partition(P), require_fresh(n), …   replays tier-state partition n, or that of P, at the first request
want(P, Q, …)                       replays those of all these partitions, by one follower instead of one each
partitions()                        replays all tier-state partitions
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...state.facts import LiveFact
from ...state.ids import TopicIdPartition
from ...state.keys import tier_partition_of
from ...state.offsets import Position
from ...state.partition_view import PartitionView
from ...state.view import SecondValue

if TYPE_CHECKING:
    from ...follower.follower import Follower


class GrowingView:
    """A `TierView`. Thread-safe. ``follow`` returns a follower that has read the given tier-state partitions to their
    ends. The code that passes ``follow`` also closes the followers.
    """

    def __init__(self, mapped: int, follow: Callable[[list[int]], Follower]) -> None:
        self._mapped, self._follow = mapped, follow
        self._lock = threading.Lock()
        self._of: dict[int, Follower] = {}

    def want(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Follow these partitions, too. Raises ViewBehind, BrokerUnavailable, AccessDenied."""
        self._followed({self.tier_partition(each) for each in partitions})

    def _followed(self, numbers: Iterable[int]) -> None:
        with self._lock:
            missing = sorted(set(numbers) - self._of.keys())
            if missing:
                self._of |= dict.fromkeys(missing, self._follow(missing))

    def _follower(self, number: int) -> Follower:
        self._followed([number])
        return self._of[number]

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return tier_partition_of(partition, self._mapped)

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        return self._follower(self.tier_partition(partition)).partition(partition)

    def partitions(self) -> list[TopicIdPartition]:
        self._followed(range(self._mapped))
        return [each for follower in dict.fromkeys(self._of.values()) for each in follower.partitions()]

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        return self._follower(self.tier_partition(partition)).facts(partition)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return self._follower(self.tier_partition(partition)).second_values(partition)

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        self._follower(self.tier_partition(partition)).forget_second_value(partition, key)

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        self._follower(tier_partition).wait_applied(tier_partition, position, timeout)

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        self._follower(tier_partition).require_fresh(tier_partition, max_age)

    def require_ready(self, tier_partition: int) -> None:
        self._follower(tier_partition).require_ready(tier_partition)

    def age_s(self, tier_partition: int) -> float | None:
        return self._follower(tier_partition).age_s(tier_partition)
