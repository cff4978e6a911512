"""The facts of the tier-state topic.

Facts are frozen values. `keys.py` creates their keys, `schemas/` encodes them, and `meaning.py` defines their meaning.
A fact of a term carries the whole term (E, Q, N: epoch, position and id of its `LeaderElected`). ``counter`` is K, the
number of the fact within its term. No term writes orders and decisions of people, readers' leases and holds (from
`OrderKind` on), so these are never fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .epochs import LeaderEpoch, Lineage
from .ids import BrokerId, FactId, TopicIdPartition
from .offsets import Offset, OffsetRange, Position, TimestampMs
from .segment import CopyAttempt, RemoteSegment, Term


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """``meta/topic`` in partition 0: the partition count that maps keys, and the cluster that owns the topic."""

    partitions: int
    cluster_id: str
    created_at: TimestampMs


@dataclass(frozen=True, slots=True)
class LeaderElected:
    """The start of a term. ``lineage`` is the logical lineage. ``local_start`` is informational, never a log start."""

    partition: TopicIdPartition
    topic: str
    epoch: LeaderEpoch
    id: FactId
    broker_id: BrokerId
    management_address: str
    lineage: Lineage
    local_start: Offset
    elected_at: TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentCopyStarted:
    """Objects of this segment id may exist from now on."""

    attempt: CopyAttempt


@dataclass(frozen=True, slots=True)
class SegmentCopyFinished:
    """The segment is complete, verified and readable."""

    segment: RemoteSegment


class DeleteReason(StrEnum):
    """The reason for which a segment is deleted."""

    RETENTION_TIME = "retention-time"
    RETENTION_SIZE = "retention-size"
    LOG_START = "log-start"
    ABANDONED = "abandoned"
    FAILED_ATTEMPT = "failed-attempt"
    OPERATOR_ORDER = "operator-order"
    PARTITION_DELETED = "partition-deleted"


@dataclass(frozen=True, slots=True)
class SegmentDeleteStarted:
    """The segment is no longer readable. ``subject`` is the most complete description of it."""

    subject: CopyAttempt | RemoteSegment
    term: Term
    counter: int
    reason: DeleteReason
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentDeleteFinished:
    """The objects were deleted. The process that deleted them verified it."""

    subject: CopyAttempt | RemoteSegment
    term: Term
    counter: int
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """The log start offset, moved by retention or an operator's order; at first the earliest offset of the broker.

    ``lineage`` has the epochs that begin below ``log_start`` in the term's lineage, or its first epoch if none does. On
    a branch that diverged from that log at a lower offset, the log start holds only up to there (`lineage.py`).
    ``lineage`` is empty in version 1 of this fact, which did not record it.
    """

    partition: TopicIdPartition
    log_start: Offset
    term: Term
    counter: int
    reason: str
    at: TimestampMs
    lineage: Lineage = field(default_factory=Lineage)


@dataclass(frozen=True, slots=True)
class LocalTrimIntended:
    """The local tier is about to be trimmed below ``offset``. The offset is never a log start."""

    partition: TopicIdPartition
    offset: Offset
    term: Term
    counter: int
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class PartitionDeleted:
    """The end of a partition, by the custodian's terminal term: all of its data and facts are to be deleted."""

    partition: TopicIdPartition
    term: Term
    at: TimestampMs


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


Fact = (
    TopicMeta
    | LeaderElected
    | SegmentCopyStarted
    | SegmentCopyFinished
    | SegmentDeleteStarted
    | SegmentDeleteFinished
    | LogStartAdvanced
    | LocalTrimIntended
    | OperatorOrder
    | ReaderLease
    | IntegrityHold
    | LineageSettled
    | ContradictionSettled
    | GapAccepted
    | PartitionMissing
    | PartitionDeleted
)


@dataclass(frozen=True, slots=True)
class UnknownFact:
    """A value that this version cannot read, under a key that it can read. The partition is degraded to read-only.

    ``later``: a later release wrote the value; nothing is damaged. ``ignorable``: the writer allows this release to
    ignore the value, so the partition is not degraded.
    """

    key: str
    reason: str
    later: bool = False
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class LiveFact:
    """An entry of the live set: a key, its fact and its position."""

    key: str
    position: Position
    fact: Fact | UnknownFact


def partition_of(fact: Fact) -> TopicIdPartition | None:
    """Return the user partition of a fact, or None for the topic's own meta fact."""
    match fact:
        case TopicMeta():
            return None
        case SegmentCopyStarted(attempt=of) | SegmentCopyFinished(segment=of):
            return of.partition
        case SegmentDeleteStarted(subject=of) | SegmentDeleteFinished(subject=of):
            return of.partition
        case _:
            return fact.partition


def term_of(fact: Fact | UnknownFact) -> Term | None:
    """Return the term that wrote a fact, or None for facts that no term writes."""
    match fact:
        case SegmentCopyStarted(attempt=of) | SegmentCopyFinished(segment=of):
            return of.term
        case (
            SegmentDeleteStarted(term=term)
            | SegmentDeleteFinished(term=term)
            | LogStartAdvanced(term=term)
            | LocalTrimIntended(term=term)
            | PartitionDeleted(term=term)
        ):
            return term
        case _:
            return None
