"""A partition's status, which only its agent knows: why nothing is copied or trimmed, and the last failure."""

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

    ``open_since``: when this agent first saw the transaction open. ``last_timestamp``: the timestamp that the producer
    set in its newest batch in the partition. ``others``: the number of open transactions that begin at later offsets.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    open_since: int
    last_timestamp: int | None
    others: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as its agent sees it. Offsets are None if unknown. Reasons are None if there is work to do.

    ``x_reason`` is the kind (`reasons.Reason`) of the sentence in ``x``. ``lso_pinned_s``: for how long this agent has
    seen the last stable offset unchanged below the high watermark. ``open_transaction``: the transaction that holds the
    offset there. It is set if it is why something is not done, and the broker named the transaction.

    ``copy_lag_segments`` is None until a look succeeds: the lag is unknown, not zero. ``copy_lag_since``: the largest
    timestamp of the oldest segment that waits to be copied; None if none waits. ``uncopied_expires_at``: when the
    broker's retention deletes the oldest uncopied segment; None if unknown. ``groups_asked_at``: when consumer groups
    were listed; None if they were not. ``orphan_objects``: the number of objects that no fact names.
    ``missing_objects``: the number of missing objects of readable segments. Both are None before the first look of this
    process. ``facts_lost``: which facts are lost, as the bucket shows, and the command that adds them. Retention is the
    effective one, in milliseconds and bytes; -1 is no limit. ``local_log_bytes``: the size of the broker's log.
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
        """Return the seconds until ``uncopied_expires_at``. They count down even while looks fail; None if unknown."""
        return None if self.uncopied_expires_at is None else max(0.0, (self.uncopied_expires_at - now) / 1000)

    def copy_lag_s(self, now: TimestampMs) -> float | None:
        """Return for how many seconds the oldest waiting segment has waited; 0 if its timestamp is in the future."""
        return None if self.copy_lag_since is None else max(0.0, (now - self.copy_lag_since) / 1000)

    def groups_age_s(self, now: TimestampMs) -> float | None:
        """Return the age in seconds of the listing of consumer groups."""
        return None if self.groups_asked_at is None else max(0.0, (now - self.groups_asked_at) / 1000)

    def saying(self, **changes: Any) -> PartitionStatus:
        """Return a status with these changes, or this object if all values are the same, as on a quiet partition."""
        return replace(self, **changes) if any(getattr(self, name) != now for name, now in changes.items()) else self

    def copying(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing is copied; None if there is work."""
        return self.saying(not_copied=_said(why), not_copied_reason=_kind(why))

    def trimming(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing is trimmed; None if there is work."""
        return self.saying(not_trimmed=_said(why), not_trimmed_reason=_kind(why))

    def expiring(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why nothing expires; None if there is work."""
        return self.saying(not_expired=_said(why), not_expired_reason=_kind(why))

    def refusing(self, why: Why | None) -> PartitionStatus:
        """Return a status with this reason why the partition is not tiered; None if it is."""
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
        """Return one status as JSON; None if this agent does not know the partition."""
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
