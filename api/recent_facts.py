"""Recent events of a partition, in words and with times, from the facts that the tier-state topic still has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest

from ..app.looking.partition_facts import describe_order
from ..rules.reasons import about_size
from ..runtime.units import counted
from ..state.facts import (
    ContradictionSettled,
    DeleteReason,
    Fact,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    UnknownFact,
)
from ..state.offsets import OffsetRange, TimestampMs
from ..state.partition_view import PartitionView

EXPIRED = (DeleteReason.RETENTION_TIME, DeleteReason.RETENTION_SIZE, DeleteReason.LOG_START)


@dataclass(frozen=True, slots=True)
class RecentFact:
    """``at``: by the writer's clock. ``fact``: the kind of the fact. ``said``: the fact in words."""

    at: TimestampMs
    partition: int
    fact: str
    said: str
    offsets: OffsetRange | None = None


def recent_facts(view: PartitionView, most: int) -> list[RecentFact]:
    """Return at most ``most`` facts, newest first by their position in the topic. Facts without a time, such as leases,
    are left out. So is the start of a copy that is finished.
    """
    facts = nlargest(most, _tellable(view), key=lambda live: live.position)
    return [_told(view.partition.partition, live.fact) for live in facts if not isinstance(live.fact, UnknownFact)]


def _tellable(view: PartitionView) -> Iterator[LiveFact]:
    for live in view.others:
        if _at(live.fact) is not None:
            yield live
    for segment in view.segments.values():
        finished = any(isinstance(live.fact, SegmentCopyFinished) for live in segment.facts)
        for live in segment.facts:
            if _at(live.fact) is not None and not (finished and isinstance(live.fact, SegmentCopyStarted)):
                yield live


def _at(fact: Fact | UnknownFact) -> TimestampMs | None:
    match fact:
        case LeaderElected(elected_at=at):
            return at
        case SegmentCopyStarted(attempt=attempt):
            return attempt.started_at
        case SegmentCopyFinished(segment=segment):
            return segment.copied_at
        case _:
            return getattr(fact, "at", None)


def _told(partition: int, fact: Fact) -> RecentFact:
    at, (words, offsets) = _at(fact), _words(fact)
    assert at is not None
    return RecentFact(at, partition, type(fact).__name__, words, offsets)


def _words(fact: Fact) -> tuple[str, OffsetRange | None]:
    match fact:
        case LeaderElected():
            return f"broker {fact.broker_id} leads, epoch {fact.epoch}; its log began at {fact.local_start:,}", None
        case LogStartAdvanced():
            return f"log start moved to {fact.log_start:,}: {fact.reason}", None
        case LocalTrimIntended():
            return f"trimmed: the broker's log below {fact.offset:,}", None
        case OperatorOrder():
            return f"order: {describe_order(fact)}", None
        case IntegrityHold():
            return f"held by broker {fact.broker_id}: {fact.reason}", None
        case LineageSettled() | ContradictionSettled():
            return f"settled by {fact.settled_by}", None
        case GapAccepted():
            return f"gap accepted by {fact.accepted_by}: {fact.reason}", fact.offsets
        case PartitionMissing():
            return f"broker {fact.broker_id} found no topic of this id", None
        case PartitionDeleted():
            return "the partition is deleted", None
        case _:
            return _words_of_segment(fact)


def _words_of_segment(fact: Fact) -> tuple[str, OffsetRange | None]:
    match fact:
        case SegmentCopyStarted(attempt=attempt):
            return f"copy of {_range(attempt.offsets)} began on broker {attempt.broker_id}", attempt.offsets
        case SegmentCopyFinished(segment=segment):
            size = f"{counted(segment.record_count, 'record')}, {about_size(segment.log_bytes)}"
            return f"copied {_range(segment.offsets)}: {size}", segment.offsets
        case SegmentDeleteStarted(subject=subject, reason=reason):
            what = "expired" if reason in EXPIRED else "deleted"
            return f"{what} {_range(subject.offsets)}: {reason.value.replace('-', ' ')}", subject.offsets
        case SegmentDeleteFinished(subject=subject):
            return f"objects of {_range(subject.offsets)} are gone", subject.offsets
        case _:
            return type(fact).__name__, None


def _range(offsets: OffsetRange) -> str:
    return f"{offsets.start:,}..{offsets.end:,}"
