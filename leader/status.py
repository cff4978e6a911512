"""A partition's status, which only its agent knows: why nothing is copied or trimmed, and the last failure."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..broker.control import OpenTransaction
from ..rules.candidates import copied_offset
from ..rules.decide import Decision, OperationKind, retention_of
from ..rules.observed import Observed
from ..rules.reasons import Reason, Why
from ..rules.trim import NoTrim
from ..state.errors import TierstateError
from ..state.ids import TopicIdPartition
from ..state.local_segments import LocalSegments
from ..state.offsets import Offset, TimestampMs, moment
from ..state.partition_view import PartitionView
from ..state.retention import local_retention_end
from ..state.routing import LocalBounds
from .term import TermContext


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
    offset there. It is set only if the broker named it, and while something is not done because of it.

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

    def because(self, **reasons: Why | None) -> PartitionStatus:
        """Return a status with these reasons, by names such as ``not_copied``. None means that there is work."""
        changes: dict[str, object] = {}
        for name, why in reasons.items():
            changes |= {name: why.text if why else None, f"{name}_reason": why.kind if why else None}
        return self.saying(**changes)


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


REFUSALS = frozenset(
    {Reason.REFUSED_COMPACTED, Reason.REFUSED_KAFKA_TIERED, Reason.REFUSED_INTERNAL, Reason.REFUSED_FORMAT}
)
SHOWN = {
    OperationKind.COPY: "not_copied",
    OperationKind.TRIM: "not_trimmed",
    OperationKind.EXPIRE: "not_expired",
}
"""The kinds of operations for which a status has the reason that they are not done."""


def reported(
    before: PartitionStatus,
    view: PartitionView,
    seen: Observed,
    decision: Decision,
    failing: Collection[OperationKind],
    now: TimestampMs,
) -> PartitionStatus:
    """Return the status after a look. ``failing``: kinds whose last operation failed; they keep the reasons of
    ``before``.
    """
    status = with_local_log(before, view, seen, now).saying(
        not_erased=decision.erase if isinstance(decision.erase, str) else None,
        held_by=decision.trim.held_by,
        groups_asked_at=seen.groups.asked_at,
    )
    copy = decision.copy if isinstance(decision.copy, Why) else None
    reasons = {
        OperationKind.COPY: copy,
        OperationKind.TRIM: decision.trim.why if isinstance(decision.trim, NoTrim) else None,
        OperationKind.EXPIRE: decision.expire if isinstance(decision.expire, Why) else None,
    }
    changes = {SHOWN[kind]: why for kind, why in reasons.items() if why is not None or kind not in failing}
    return status.because(**changes, refused=copy if copy is not None and copy.kind in REFUSALS else None)


def with_local_log(before: PartitionStatus, view: PartitionView, seen: Observed, now: TimestampMs) -> PartitionStatus:
    """Return ``before`` with new data of the broker's log and the topic's settings. Needs no object store."""
    copied_to = copied_offset(view, seen.bounds)
    local = LocalSegments.of(seen.segments)
    first = local.number_at(copied_to + 1)
    behind = len(local.rolled) - first
    retention, retention_ms = retention_of(seen.config), seen.config.retention_ms
    oldest, end = local.oldest_from(first), local_retention_end(seen.segments, retention, now)
    return before.saying(
        leads=True,
        copied_to=copied_to,
        local_log_start_offset=seen.bounds.local_start,
        last_stable_offset=seen.bounds.last_stable_offset,
        copy_lag_segments=behind,
        copy_lag_bytes=local.rolled_bytes(first),
        copy_lag_since=local[first].max_timestamp if behind else None,
        uncopied_expires_at=None if oldest is None or retention_ms < 0 else oldest + retention_ms,
        local_log_bytes=local.size_bytes,
        # what local retention would delete if nothing kept it
        local_excess_bytes=0 if end is None else local.rolled_bytes(0, local.number_at(end)),
        retention_ms=retention.total_ms,
        retention_bytes=retention.total_bytes,
        local_retention_ms=retention.local_ms,
        local_retention_bytes=retention.local_bytes,
    )


def refused(before: PartitionStatus, why: Why) -> PartitionStatus:
    """Return the status of a partition that is not tiered: ``why`` becomes the reason for everything."""
    return before.saying(leads=True).because(refused=why, **dict.fromkeys(SHOWN.values(), why))


def failed(before: PartitionStatus, why: Why, kind: OperationKind | None) -> PartitionStatus:
    """Return the status after a failure. ``kind``: of the failed operation; None if no decision was possible."""
    if before.refused is not None:
        return before
    names = [name for shown, name in SHOWN.items() if kind in (None, shown)]
    return before.saying(leads=True).because(**dict.fromkeys(names, why))


NAMED_AFTER_S = 5.0
"""Seconds after which a transaction is named, because most end earlier. A partition that waits for a transaction is
looked at again after the same time (`schedule.py`)."""
ASK_EVERY_S = 60.0


@dataclass(slots=True)
class _Pin:
    """``at``: the last stable offset, unchanged since ``seconds`` (monotonic) and ``since``. ``due``: when to ask."""

    at: Offset
    seconds: float
    since: TimestampMs
    due: float
    by: PinnedBy | None = None


class StableOffsetPin:
    """Watches for how long a partition's last stable offset has not moved, and which open transaction holds it.

    The transaction is named for people only, so no operation waits for the name. The broker is asked only after a look
    that found nothing to do, and only while something is not done because of an open transaction. The offset must be
    unchanged for `NAMED_AFTER_S`, and the last request must be `ASK_EVERY_S` ago. If the broker does not know the
    request, or refuses it (it needs READ on the topic), the transaction stays unnamed. Used by one thread at a time.
    """

    def __init__(self, context: TermContext, partition: TopicIdPartition, name: str) -> None:
        self._context, self._partition, self._name = context, partition, name
        self._pin: _Pin | None = None

    def pinned_s(self, bounds: LocalBounds) -> float:
        """Return for how many seconds this process has seen the last stable offset unchanged, below the high watermark.
        Returns 0 if the last stable offset is not below it.
        """
        stable, now = bounds.last_stable_offset, self._context.clock.monotonic()
        if stable >= bounds.high_watermark:
            self._pin = None
        elif self._pin is None or self._pin.at != stable:
            self._pin = _Pin(stable, now, self._context.clock.now_ms(), now + NAMED_AFTER_S)
        return now - self._pin.seconds if self._pin else 0.0

    def named(self, status: PartitionStatus) -> PartitionStatus:
        """Return the status with the transaction, if known, in reasons that it causes. Sends no request."""
        by = self._pin.by if self._pin is not None and _matters(status) else None
        if by is None:
            return status.saying(open_transaction=None)
        whose = f"; {_sentence(by)}"
        copied = status.not_copied_reason is Reason.OPEN_TRANSACTION
        trimmed = status.not_trimmed_reason is Reason.OPEN_TRANSACTION
        return replace(
            status,
            open_transaction=by,
            not_copied=f"{status.not_copied}{whose}" if copied else status.not_copied,
            not_trimmed=f"{status.not_trimmed}{whose}" if trimmed else status.not_trimmed,
        )

    def learn(self, shown: PartitionStatus) -> bool:
        """Ask the broker if that is due. Return whether the transaction is known now and ``shown`` lacks it. If the
        broker does not answer, this raises nothing, and the last known transaction stays.
        """
        pin, now = self._pin, self._context.clock.monotonic()
        if pin is None or now < pin.due or not _matters(shown):
            return False
        pin.due = now + ASK_EVERY_S
        try:
            place, broker = (self._name, self._partition.partition), self._context.log.broker_of(self._partition)
            pin.by = _holder(self._context.broker.open_transactions(*place, broker=broker), pin)
        except TierstateError:
            return False
        return pin.by is not None and shown.open_transaction is None


def _sentence(by: PinnedBy) -> str:
    """Return the description of a transaction for people. The last record's time was set by the producer."""
    more = f" (and {by.others} more are open)" if by.others else ""
    last = "" if by.last_timestamp is None else f", its producer's last record here is of {moment(by.last_timestamp)}"
    whose = f"it is of producer {by.producer_id}, epoch {by.producer_epoch}, begins at offset {by.start_offset}"
    return f"{whose} and is open since {moment(by.open_since)} at the latest{last}{more}"


def _matters(status: PartitionStatus) -> bool:
    return Reason.OPEN_TRANSACTION in (status.not_copied_reason, status.not_trimmed_reason)


def _holder(transactions: tuple[OpenTransaction, ...], pin: _Pin) -> PinnedBy | None:
    """Return the first transaction. None: it begins above the pin, so the last stable offset has moved since."""
    if not transactions or transactions[0].start > pin.at:
        return None
    first = transactions[0]
    return PinnedBy(
        first.producer_id, first.producer_epoch, first.start, pin.since, first.last_timestamp, len(transactions) - 1
    )
