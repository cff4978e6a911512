"""A partition's status after a look at it: how far each tier reaches, and why something is not done."""

from __future__ import annotations

from collections.abc import Collection

from ..rules.candidates import copied_offset
from ..rules.decide import Decision, OperationKind, retention_of
from ..rules.observed import Observed
from ..rules.reasons import Reason, Why
from ..rules.trim import NoTrim
from ..state.local_segments import LocalSegments
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import local_retention_end
from .status import PartitionStatus

REFUSALS = frozenset(
    {Reason.REFUSED_COMPACTED, Reason.REFUSED_KAFKA_TIERED, Reason.REFUSED_INTERNAL, Reason.REFUSED_FORMAT}
)


def reported(
    before: PartitionStatus,
    view: PartitionView,
    seen: Observed,
    decision: Decision,
    failing: Collection[OperationKind],
    now: TimestampMs,
) -> PartitionStatus:
    """Return the status after a look. ``failing``: kinds whose last operation failed; ``before`` has the reasons."""
    status = with_local_log(before, view, seen, now).saying(
        not_erased=decision.erase if isinstance(decision.erase, str) else None,
        held_by=decision.trim.held_by,
        groups_asked_at=seen.groups.asked_at,
    )
    copy = decision.copy if isinstance(decision.copy, Why) else None
    trim = decision.trim.why if isinstance(decision.trim, NoTrim) else None
    expire = decision.expire if isinstance(decision.expire, Why) else None
    if copy is not None or OperationKind.COPY not in failing:
        status = status.copying(copy)
    if trim is not None or OperationKind.TRIM not in failing:
        status = status.trimming(trim)
    if expire is not None or OperationKind.EXPIRE not in failing:
        status = status.expiring(expire)
    return status.refusing(copy if copy is not None and copy.kind in REFUSALS else None)


def with_local_log(before: PartitionStatus, view: PartitionView, seen: Observed, now: TimestampMs) -> PartitionStatus:
    """Return ``before`` with new data of the broker's log and the topic's settings. Needs no object store."""
    copied_to = copied_offset(view, seen.bounds)
    local = LocalSegments.of(seen.segments)
    first = local.number_at(copied_to + 1)
    behind = len(local.rolled) - first
    retention = retention_of(seen.config)
    return before.saying(
        leads=True,
        copied_to=copied_to,
        local_log_start_offset=seen.bounds.local_start,
        last_stable_offset=seen.bounds.last_stable_offset,
        copy_lag_segments=behind,
        copy_lag_bytes=local.rolled_bytes(first),
        copy_lag_since=local[first].max_timestamp if behind else None,
        uncopied_expires_at=_expires_at(local.oldest_from(first), seen.config.retention_ms),
        local_log_bytes=local.size_bytes,
        local_excess_bytes=_local_excess(seen, now),
        retention_ms=retention.total_ms,
        retention_bytes=retention.total_bytes,
        local_retention_ms=retention.local_ms,
        local_retention_bytes=retention.local_bytes,
    )


def refused(before: PartitionStatus, why: Why) -> PartitionStatus:
    """Return the status of a partition that is not tiered: ``why`` becomes the reason for everything."""
    return before.saying(leads=True).refusing(why).copying(why).trimming(why).expiring(why)


def failed(before: PartitionStatus, why: Why, kind: OperationKind | None) -> PartitionStatus:
    """Return the status after a failure. ``kind``: of the failed operation; None if no decision was possible."""
    if before.refused is not None:
        return before
    status = before.saying(leads=True)
    if kind in (None, OperationKind.COPY):
        status = status.copying(why)
    if kind in (None, OperationKind.TRIM):
        status = status.trimming(why)
    if kind in (None, OperationKind.EXPIRE):
        status = status.expiring(why)
    return status


def _expires_at(oldest: TimestampMs | None, retention_ms: int) -> int | None:
    """Return when Kafka's retention by time deletes uncopied data (ms); None if there is none, or no time limit."""
    return None if oldest is None or retention_ms < 0 else oldest + retention_ms


def _local_excess(seen: Observed, now: TimestampMs) -> int:
    """Return the bytes that local retention would delete if nothing kept them."""
    end = local_retention_end(seen.segments, retention_of(seen.config), now)
    local = LocalSegments.of(seen.segments)
    return 0 if end is None else local.rolled_bytes(0, local.number_at(end))
