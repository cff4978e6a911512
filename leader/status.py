"""What only the agent knows about a partition: why it is not copied, why it is not trimmed, what failed last."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

from ..state.ids import TopicIdPartition


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as its agent sees it. Offsets are None where unknown; reasons are None when there is work.

    ``uncopied_expires_in_s``: when the broker's own retention takes the oldest uncopied segment; None: not in sight.
    """

    topic: str
    partition: int
    topic_id: str
    leads: bool
    term: str | None = None
    refused: str | None = None
    copied_to: int | None = None
    local_start: int | None = None
    last_stable_offset: int | None = None
    not_copied: str | None = None
    not_trimmed: str | None = None
    not_expired: str | None = None
    not_erased: str | None = None
    held_by: tuple[str, ...] = ()
    copy_lag_segments: int = 0
    copy_lag_bytes: int = 0
    uncopied_expires_in_s: float | None = None
    consecutive_failures: int = 0
    last_error: str | None = None


class StatusBoard:
    """The latest status of every partition this broker hosts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[TopicIdPartition, PartitionStatus] = {}

    def put(self, partition: TopicIdPartition, status: PartitionStatus) -> None:
        with self._lock:
            self._statuses[partition] = status

    def drop(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._statuses.pop(partition, None)

    def by_partition(self) -> dict[TopicIdPartition, PartitionStatus]:
        with self._lock:
            return dict(self._statuses)

    def all(self) -> list[PartitionStatus]:
        with self._lock:
            return sorted(self._statuses.values(), key=lambda status: (status.topic, status.partition))

    def find(self, topic: str, partition: int) -> dict[str, Any] | None:
        """As JSON; None for a partition this agent does not know."""
        return next(
            (asdict(status) for status in self.all() if (status.topic, status.partition) == (topic, partition)), None
        )
