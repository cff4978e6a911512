"""Facts that no term writes, so they are never fenced: orders and decisions of people, readers' leases, holds.

`facts.py` has the other facts and defines `Fact`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .epochs import Lineage
from .ids import BrokerId, FactId, TopicIdPartition
from .offsets import Offset, OffsetRange, TimestampMs


class OrderKind(StrEnum):
    """The kinds of orders. Pause, resume and disable supersede each other; the highest delete-records order counts."""

    PAUSE = "pause"
    RESUME = "resume"
    DISABLE_KEEP = "disable-keep"
    DISABLE_DELETE = "disable-delete"
    DELETE_RECORDS = "delete-records"


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """An order of an operator. No term writes it, so it is never fenced.

    ``lineage`` of a delete-records order is that of the log below ``before`` at the time of the order, as in
    `LogStartAdvanced`: records written later on another branch are not deleted. It is empty for other orders, and in
    version 1 of this fact. A delete-records order of version 1 does not identify its records and is not executed.
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
    """A reader's lease: objects with ``offsets`` are not deleted until ``expires_at``."""

    partition: TopicIdPartition
    id: FactId
    offsets: OffsetRange
    holder: str
    expires_at: TimestampMs


@dataclass(frozen=True, slots=True)
class IntegrityHold:
    """Two contradicting facts that an agent saw. While it is live, nothing is trimmed, expired, swept or erased."""

    partition: TopicIdPartition
    id: FactId
    broker_id: BrokerId
    reason: str
    first: str
    second: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class LineageSettled:
    """A person's decision how the log continues below the broker's checkpoint, because no other fact shows it."""

    partition: TopicIdPartition
    id: FactId
    lineage: Lineage
    settled_by: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class ContradictionSettled:
    """A person's decision to accept the state that `lifecycle.py` derives from contradicting facts.

    ``contradiction``: its text, with keys and positions. ``keep``: the segment's objects are never deleted.
    """

    partition: TopicIdPartition
    id: FactId
    contradiction: str
    keep: bool
    settled_by: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class GapAccepted:
    """A person's decision to accept that neither tier has ``offsets``: readers continue after them.

    ``lineage``: of the log up to the end of ``offsets`` at that time, as in `LogStartAdvanced`. The fact holds as far
    as the log in force is that log, and only for offsets that no tier has. ``reason``: why they are lost, as typed.
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
    """The custodian's observation that the cluster has no topic with this id."""

    partition: TopicIdPartition
    id: FactId
    cluster_id: str
    broker_id: BrokerId
    at: TimestampMs
