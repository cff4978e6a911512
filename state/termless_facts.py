"""Facts that no term writes, so that nothing fences them: what people order and settle, readers' leases, holds.

`facts.py` has the others, and says what a fact is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .epochs import Lineage
from .ids import BrokerId, FactId, TopicIdPartition
from .offsets import Offset, OffsetRange, TimestampMs


class OrderKind(StrEnum):
    """``pause resume disable`` supersede each other; for ``delete-records`` the highest offset counts."""

    PAUSE = "pause"
    RESUME = "resume"
    DISABLE_KEEP = "disable-keep"
    DISABLE_DELETE = "disable-delete"
    DELETE_RECORDS = "delete-records"


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """By no term, so never fenced.

    ``lineage`` of a delete-records order: of the log below ``before`` when it was ordered, as in `LogStartAdvanced`:
    what was written since on another branch is not meant. Otherwise, and in version 1 of this fact, empty: an order
    that does not say which records it meant is not carried out.
    """

    partition: TopicIdPartition
    id: FactId
    kind: OrderKind
    before: Offset | None
    force: bool
    issued_by: str
    at: TimestampMs
    lineage: Lineage = field(default_factory=Lineage)


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """A reader pins ``offsets`` until ``expires_at``."""

    partition: TopicIdPartition
    id: FactId
    offsets: OffsetRange
    holder: str
    expires_at: TimestampMs


@dataclass(frozen=True, slots=True)
class IntegrityHold:
    """An agent saw two facts contradict each other: no trim, expiry, sweep or erasing while it lives."""

    partition: TopicIdPartition
    id: FactId
    broker_id: BrokerId
    reason: str
    first: str
    second: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class LineageSettled:
    """A person said how the log goes on below the broker's checkpoint, where nothing else says it."""

    partition: TopicIdPartition
    id: FactId
    lineage: Lineage
    settled_by: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class ContradictionSettled:
    """A person looked at facts that exclude each other: what `lifecycle.py` makes of them stands.

    ``contradiction``: its text, which names keys and positions. ``keep``: the segment's objects are never deleted.
    """

    partition: TopicIdPartition
    id: FactId
    contradiction: str
    keep: bool
    settled_by: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class GapAccepted:
    """A person accepted that neither tier has ``offsets``: readers go on behind them.

    ``lineage``: of the log up to their end when it was accepted, as in `LogStartAdvanced`. The fact holds as far as the
    log in force is that log, and only where no tier has the offset. ``reason``: why the records are gone, as typed.
    """

    partition: TopicIdPartition
    id: FactId
    offsets: OffsetRange
    lineage: Lineage
    reason: str
    accepted_by: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class PartitionMissing:
    """The custodian found no topic with this id."""

    partition: TopicIdPartition
    id: FactId
    cluster_id: str
    broker_id: BrokerId
    at: TimestampMs
