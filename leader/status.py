"""A partition's status, as only its agent knows it: why nothing is copied or trimmed, and what failed last."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..rules.reasons import Reason, Why
from ..state.ids import TopicIdPartition
from ..state.offsets import TimestampMs


@dataclass(frozen=True, slots=True)
class PinnedBy:
    """The transaction that holds the last stable offset. Times in ms since 1970.

    ``open_since``: when this agent first saw it open. ``last_timestamp``: of its producer's newest batch in the
    partition, as the producer set it. ``others``: how many more are open there, from later offsets on.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    open_since: int
    last_timestamp: int | None
    others: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as its agent sees it. Offsets are None where unknown; reasons are None when there is work.

    ``…_reason``: the kind (`reasons.Reason`) of the sentence of that name. ``lso_pinned_s``: for how long this agent
    has seen the last stable offset stand below the high watermark; ``open_transaction``: the transaction that holds it
    there, if that is why something is not done and the broker named it.

    ``copy_lag_segments``: None until a look succeeds: the lag is unknown, not zero. ``copy_lag_since``: the time of the
    newest record of the oldest segment that waits to be copied; None: none waits. ``uncopied_expires_at``: when the
    broker's own retention takes the oldest uncopied segment; None: not in sight. ``groups_asked_at``: when consumer
    groups were listed; None: they were not. ``orphan_objects``: objects that no fact names, ``missing_objects``: those
    of readable segments that are missing, at the last look; None: this process has not looked yet. ``facts_lost``:
    which facts are lost, as the bucket shows, and the command that adds them. ``local_log_bytes``: the size of the
    broker's own log. Retention as it is obeyed: milliseconds and bytes, -1 is no limit.
    """

    topic: str
    partition: int
    topic_id: str
    leads: bool
    term: str | None = None
    refused: str | None = None
    refused_reason: Reason | None = None
    copied_to: int | None = None
    local_log_start_offset: int | None = None
    last_stable_offset: int | None = None
    not_copied: str | None = None
    not_copied_reason: Reason | None = None
    not_trimmed: str | None = None
    not_trimmed_reason: Reason | None = None
    not_expired: str | None = None
    not_expired_reason: Reason | None = None
    not_erased: str | None = None
    held_by: tuple[str, ...] = ()
    groups_asked_at: int | None = None
    lso_pinned_s: float = 0.0
    open_transaction: PinnedBy | None = None
    copy_lag_segments: int | None = None
    copy_lag_bytes: int | None = None
    copy_lag_since: int | None = None
    orphan_objects: int | None = None
    orphan_bytes: int | None = None
    missing_objects: int | None = None
    facts_lost: str | None = None
    uncopied_expires_at: int | None = None
    local_log_bytes: int | None = None
    local_excess_bytes: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None
    consecutive_failures: int = 0
    last_error: str | None = None

    def uncopied_expires_in_s(self, now: TimestampMs) -> float | None:
        """Return the seconds left, counting down even while looks fail: that is when it matters."""
        return None if self.uncopied_expires_at is None else max(0.0, (self.uncopied_expires_at - now) / 1000)

    def copy_lag_s(self, now: TimestampMs) -> float | None:
        """Return the seconds for which the oldest waiting segment has waited; 0 for records of the future."""
        return None if self.copy_lag_since is None else max(0.0, (now - self.copy_lag_since) / 1000)

    def groups_age_s(self, now: TimestampMs) -> float | None:
        """Return the age in seconds of the listing of consumer groups."""
        return None if self.groups_asked_at is None else max(0.0, (now - self.groups_asked_at) / 1000)

    def saying(self, **changes: Any) -> PartitionStatus:
        """Return a status with these changes, or this object if none changes anything, as on a quiet partition."""
        return replace(self, **changes) if any(getattr(self, name) != now for name, now in changes.items()) else self

    def copying(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing is copied; None: there is work."""
        return self.saying(not_copied=_said(why), not_copied_reason=_kind(why))

    def trimming(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing is trimmed; None: there is work."""
        return self.saying(not_trimmed=_said(why), not_trimmed_reason=_kind(why))

    def expiring(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing expires; None: there is work."""
        return self.saying(not_expired=_said(why), not_expired_reason=_kind(why))

    def refusing(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why the partition is not tiered; None: it is."""
        return self.saying(refused=_said(why), refused_reason=_kind(why))


def _said(why: Why | None) -> str | None:
    return None if why is None else why.text


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

    def find(self, topic: str, partition: int, now: TimestampMs) -> dict[str, Any] | None:
        """Return one status as JSON; None for a partition that this agent does not know."""
        for status in self.all():
            if (status.topic, status.partition) == (topic, partition):
                return _as_json(status, now)
        return None

    def whole(self, now: TimestampMs) -> list[dict[str, Any]]:
        """Return all statuses, each as JSON."""
        return [_as_json(status, now) for status in self.all()]


def _as_json(status: PartitionStatus, now: TimestampMs) -> dict[str, Any]:
    return {
        **asdict(status),
        "uncopied_expires_in_s": status.uncopied_expires_in_s(now),
        "groups_age_s": status.groups_age_s(now),
        "copy_lag_s": status.copy_lag_s(now),
    }
