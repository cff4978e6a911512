"""What only the agent knows about a partition: why it is not copied, why it is not trimmed, what failed last."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..state.ids import TopicIdPartition
from .reasons import Reason, Why


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as its agent sees it. Offsets are None where unknown; reasons are None when there is work.

    ``…_reason``: the kind (`reasons.Reason`) of the sentence of that name. ``lso_pinned_s``: how long this agent has
    seen the last stable offset stand below the high watermark.

    ``uncopied_expires_in_s``: when the broker's own retention takes the oldest uncopied segment; None: not in sight.
    ``orphan_objects``: what no fact names, at the last look; None: this process has not looked yet.
    """

    topic: str
    partition: int
    topic_id: str
    leads: bool
    term: str | None = None
    refused: str | None = None
    refused_reason: Reason | None = None
    copied_to: int | None = None
    local_start: int | None = None
    last_stable_offset: int | None = None
    not_copied: str | None = None
    not_copied_reason: Reason | None = None
    not_trimmed: str | None = None
    not_trimmed_reason: Reason | None = None
    not_expired: str | None = None
    not_expired_reason: Reason | None = None
    not_erased: str | None = None
    held_by: tuple[str, ...] = ()
    lso_pinned_s: float = 0.0
    copy_lag_segments: int = 0
    copy_lag_bytes: int = 0
    uncopied_expires_in_s: float | None = None
    orphan_objects: int | None = None
    orphan_bytes: int | None = None
    uncopied_expires_at: int | None = None
    local_excess_bytes: int = 0
    consecutive_failures: int = 0
    last_error: str | None = None

    def copying(self, why: Why | None) -> PartitionStatus:
        """With this for why nothing is copied; None: there is work."""
        return replace(self, not_copied=_said(why), not_copied_reason=_kind(why))

    def trimming(self, why: Why | None) -> PartitionStatus:
        """With this for why nothing is trimmed; None: there is work."""
        return replace(self, not_trimmed=_said(why), not_trimmed_reason=_kind(why))

    def expiring(self, why: Why | None) -> PartitionStatus:
        """With this for why nothing expires; None: there is work."""
        return replace(self, not_expired=_said(why), not_expired_reason=_kind(why))

    def refusing(self, why: Why | None) -> PartitionStatus:
        """With this for why the partition is not tiered; None: it is."""
        return replace(self, refused=_said(why), refused_reason=_kind(why))


def _said(why: Why | None) -> str | None:
    return None if why is None else why.said


def _kind(why: Why | None) -> Reason | None:
    return None if why is None else why.kind


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
