"""What can be restored from a bucket alone, and what cannot: manifests and archived facts to a plan. Pure.

The archive speaks first: what it says was deleted or abandoned stays so, what it says was finished is restored, its log
starts, orders and holds bind. Where it is silent (or there is none) a manifest speaks for its segment:

    ends below the log start            unproven    the highest log start that a manifest or an archived fact names
    its epochs lose, or it owns nothing lost        the lineage of the segments that later terms copied
    of a history that was left          lost        what a person said when the next one began (`lost_history.py`)
    otherwise                           restored

An attempt that never finished stays abandoned, unless its manifest is there and offsets that left the broker are in no
other segment*: then the fact that finished it was lost with the end of the topic.
The lineage is built from the segments' own epochs, those of later terms first: every segment that a term copied was in
that term's log, so where two segments contradict each other the later term's log is the one that went on.
A log start counts as far as it holds on that lineage*: a log that began anew did not begin where the lost one did. A
manifest says its own in the epochs of its segment.
New terms are written, never the manifests' Q; everything else of a descriptor stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..state.coverage import Coverage
from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.facts import (
    DeleteReason,
    Fact,
    LeaderElected,
    LocalTrimIntended,
    LogStartAdvanced,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteStarted,
)
from ..state.ids import RECOVERER, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.lifecycle import kept_segments
from ..state.lineage import below, highest_log_start, holds_up_to, readable_ranges
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.segment import CopyAttempt, RemoteSegment, SegmentState, Term
from ..state.termless_facts import (
    ContradictionSettled,
    GapAccepted,
    IntegrityHold,
    LineageSettled,
    OperatorOrder,
    ReaderLease,
)

GONE = frozenset({SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED, SegmentState.ABANDONED})
"""What the archive says of segments that are not restored."""

Standing = OperatorOrder | ReaderLease | IntegrityHold | LineageSettled | ContradictionSettled | GapAccepted
"""Facts by no term: restored as they stood."""


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A whole segment in the bucket, as its manifest describes it. ``log_start``: the partition's, at copy time."""

    segment: RemoteSegment
    started_at: TimestampMs
    log_start: Offset
    cluster_id: str
    tier_state_topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """What the archive says of a partition: its whole history, as far as it is archived.

    ``log_starts``: all that were accepted. ``finished``: descriptors of the segments that were readable.
    ``unfinished``: those that are abandoned and of which no fact says that the copy was finished. ``unreadable``: facts
    this version cannot read. ``ignorable``: those of them that it may ignore; a fresh topic would lose them.
    ``addresses``: where the agents of all its terms answered.
    """

    partition: TopicIdPartition
    leader: LeaderElected | None = None
    log_starts: tuple[LogStartAdvanced, ...] = ()
    states: Mapping[RemoteSegmentId, SegmentState] = field(default_factory=dict)
    reasons: Mapping[RemoteSegmentId, DeleteReason] = field(default_factory=dict)
    finished: Mapping[RemoteSegmentId, RemoteSegment] = field(default_factory=dict)
    standing: tuple[Standing, ...] = ()
    deleted: bool = False
    unreadable: tuple[str, ...] = ()
    ignorable: tuple[str, ...] = ()
    addresses: frozenset[str] = frozenset()
    unfinished: frozenset[RemoteSegmentId] = frozenset()


class Verdict(StrEnum):
    """Why a segment that is in the bucket is not restored."""

    LOST = "lost"
    UNPROVEN = "unproven"
    DELETED = "deleted"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A whole segment that is not restored as readable."""

    segment: RemoteSegment
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition as it will be. ``refused``: why nothing is written of it; ``ended``: because nothing should be.

    ``deletes``: deleted by an archived fact, objects still there: the delete is said again. ``missing``: readable in
    the archive, not whole in the bucket. ``gaps``: between the log start and the end of both tiers, as far as known.
    ``unproven``: what may be no gap: the log start may have moved over it after all that is recorded. ``local_start``:
    the broker's, where it told it.
    """

    partition: TopicIdPartition
    topic: str
    epoch: LeaderEpoch
    lineage: Lineage
    log_start: Offset | None
    log_start_from: str
    restored: tuple[FoundSegment, ...]
    deletes: tuple[tuple[FoundSegment, DeleteReason], ...]
    left_out: tuple[LeftOut, ...]
    missing: tuple[RemoteSegment, ...]
    gaps: tuple[OffsetRange, ...]
    unproven: tuple[OffsetRange, ...] = ()
    standing: tuple[Standing, ...] = ()
    refused: str | None = None
    ended: bool = False
    local_start: Offset | None = None

    def of(self, verdict: Verdict) -> list[LeftOut]:
        return [each for each in self.left_out if each.verdict is verdict]

    @property
    def writes(self) -> bool:
        """Whether any fact is written."""
        return self.refused is None and bool(
            self.restored or self.deletes or self.standing or self.log_start is not None
        )


def plan_partitions(
    found: Iterable[FoundSegment],
    archive: Mapping[TopicIdPartition, ArchivedPartition],
    local_starts: Mapping[TopicIdPartition, Offset],
    left: Collection[RemoteSegmentId] = (),
) -> tuple[PartitionPlan, ...]:
    """Every partition that the bucket or the archive names. ``local_starts``: as far as brokers told them. ``left``:
    segments that only a lost history knew.
    """
    by_partition: dict[TopicIdPartition, list[FoundSegment]] = {partition: [] for partition in archive}
    for each in found:
        by_partition.setdefault(each.segment.partition, []).append(each)
    return tuple(
        plan_partition(
            partition,
            segments,
            archive.get(partition) or ArchivedPartition(partition),
            local_starts.get(partition),
            left,
        )
        for partition, segments in sorted(by_partition.items())
    )


def plan_partition(
    partition: TopicIdPartition,
    found: list[FoundSegment],
    archived: ArchivedPartition,
    local_start: Offset | None = None,
    left: Collection[RemoteSegmentId] = (),
) -> PartitionPlan:
    """See the module docstring. Facts that cannot be read may be deletes, so they refuse the partition."""
    found = sorted(found, key=lambda each: (each.segment.offsets, each.segment.segment_id))
    found_here = [each for each in found if each.segment.segment_id not in left]
    standing = [each for each in found_here if archived.states.get(each.segment.segment_id) not in GONE]
    ruling = lineage_of([each.segment for each in standing], archived.leader)
    log_start, source = _log_start(found_here, archived, ruling)
    kept = kept_segments([each for each in archived.standing if isinstance(each, ContradictionSettled)])
    certain, silent, unfinished, deletes, left_out = [], [], [], [], []
    for each in found:
        match archived.states.get(each.segment.segment_id):
            case SegmentState.COPY_SEGMENT_FINISHED:
                certain.append(each)
            case SegmentState.DELETE_SEGMENT_STARTED | SegmentState.DELETE_SEGMENT_FINISHED as state:
                if each.segment.segment_id not in kept:
                    deletes.append((each, archived.reasons.get(each.segment.segment_id, DeleteReason.LOG_START)))
                left_out.append(LeftOut(each.segment, Verdict.DELETED, f"the archive says {state}"))
            case SegmentState.ABANDONED if each.segment.segment_id in archived.unfinished:
                unfinished.append(each)
            case SegmentState.ABANDONED as state:
                left_out.append(LeftOut(each.segment, Verdict.ABANDONED, f"the archive says {state}"))
            case _ if each.segment.segment_id in left:
                why = "of a history that was left: only the lost one knew it"
                left_out.append(LeftOut(each.segment, Verdict.LOST, why))
            case _ if log_start is not None and each.segment.offsets.end < log_start:
                why = f"ends below the log start {log_start}, and no archived fact says that it still lived"
                left_out.append(LeftOut(each.segment, Verdict.UNPROVEN, why))
            case _:
                silent.append(each)
    lineage, coverage = _covered((*certain, *silent), archived.leader)
    holes = _gaps(coverage, log_start, local_start, ())
    last = [each for each in unfinished if each.segment.segment_id not in left and _fills(each.segment, holes)]
    if last:
        silent += last
        lineage, coverage = _covered((*certain, *silent), archived.leader)
    ended = [each for each in unfinished if each not in last]
    left_out += [LeftOut(each.segment, Verdict.ABANDONED, "no fact says that its copy was finished") for each in ended]
    owners = {piece.segment.segment_id for piece in coverage.owned}
    lost = [each.segment for each in silent if each.segment.segment_id not in owners]
    left_out += [LeftOut(segment, Verdict.LOST, why_lost(segment, coverage)) for segment in lost]
    restored = [*certain, *(each for each in silent if each.segment.segment_id in owners)]
    restored.sort(key=lambda each: (each.segment.offsets, each.segment.segment_id))
    here = {each.segment.segment_id for each in found}
    missing = tuple(segment for sid, segment in sorted(archived.finished.items()) if sid not in here)
    newest = max(found, key=lambda each: each.segment.copied_at).segment.topic if found else ""
    gaps, unproven = _sorted_out(_gaps(coverage, log_start, local_start, missing), coverage, log_start, missing)
    plan = PartitionPlan(
        partition=partition,
        topic=archived.leader.topic if archived.leader else newest,
        epoch=lineage.last_epoch or LeaderEpoch(archived.leader.epoch if archived.leader else 0),
        lineage=lineage,
        log_start=log_start,
        log_start_from=source,
        restored=tuple(restored),
        deletes=tuple(deletes),
        left_out=tuple(left_out),
        missing=missing,
        gaps=gaps,
        unproven=unproven,
        standing=archived.standing,
        local_start=local_start,
    )
    if archived.deleted:
        why = "the archive says that the custodian deleted this partition"
        return replace(plan, refused=why, ended=True, gaps=(), unproven=(), missing=())
    if unreadable := (*archived.unreadable, *archived.ignorable):
        return replace(plan, refused=f"the archive holds what this version cannot read: {unreadable[0]}")
    return plan


def lineage_of(segments: Iterable[RemoteSegment], elder: LeaderElected | None = None) -> Lineage:
    """The lineage that the segments' own epochs make: those of later terms first, what contradicts them is cut.

    ``elder``: the archived leader, whose lineage counts like that of a segment of its term.
    """
    claims: list[tuple[tuple[int, int, int, int], LeaderEpoch, int, int]] = []
    for segment in segments:
        order = (-segment.term.epoch, 1, -segment.term.position, segment.offsets.start)
        claims += [(order, *each) for each in _claims(segment.leader_epochs.entries, segment.offsets.end)]
    if elder is not None and elder.lineage.entries:
        entries = elder.lineage.entries  # where its last epoch ends is not known: it claims where that begins
        claims += [((-elder.epoch, 0, 0, 0), *each) for each in _claims(entries, entries[-1].start_offset)]
    starts: dict[LeaderEpoch, int] = {}
    ends: dict[LeaderEpoch, int] = {}
    for _, epoch, start, end in sorted(claims):
        above = min((at for other, at in starts.items() if other > epoch), default=end + 1)
        below = max((at for other, at in ends.items() if other < epoch), default=-1)
        start, end = max(start, below + 1), min(end, above - 1)
        if start <= end:
            starts[epoch] = min(start, starts.get(epoch, start))
            ends[epoch] = max(end, ends.get(epoch, end))
    return Lineage(tuple(EpochEntry(epoch, Offset(starts[epoch])) for epoch in sorted(starts)))


def _covered(found: Iterable[FoundSegment], leader: LeaderElected | None) -> tuple[Lineage, Coverage]:
    segments = tuple(each.segment for each in found)
    lineage = lineage_of(segments, leader)
    return lineage, Coverage(segments, lineage)


def _fills(segment: RemoteSegment, holes: Iterable[OffsetRange]) -> bool:
    return any(hole.start <= segment.offsets.end and segment.offsets.start <= hole.end for hole in holes)


def _claims(entries: tuple[EpochEntry, ...], end: int) -> Iterator[tuple[LeaderEpoch, int, int]]:
    for at, entry in enumerate(entries):
        last = entries[at + 1].start_offset - 1 if at + 1 < len(entries) else end
        if last >= entry.start_offset:
            yield entry.epoch, entry.start_offset, last


def why_lost(segment: RemoteSegment, coverage: Coverage) -> str:
    """Who has what this segment would have had."""
    parts = readable_ranges(segment, coverage.lineage)
    if not parts:
        epoch = segment.leader_epochs.entries[0].epoch
        ruling = coverage.lineage.epoch_at(segment.offsets.start)
        winner = coverage.at(segment.offsets.start)
        by = f", as in segment {winner.segment.segment_id} of term {winner.segment.term}" if winner else ""
        where = f"epoch {ruling}" if ruling is not None else "a lineage that begins later"
        return f"its epoch {epoch} lost offset {segment.offsets.start} to {where}{by}"
    by = ", ".join(sorted({o.segment.segment_id for part in parts if (o := coverage.at(part.start))}))
    return f"other segments have all of its offsets, from {by} on"


def _log_start(found: list[FoundSegment], archived: ArchivedPartition, ruling: Lineage) -> tuple[Offset | None, str]:
    """The highest that holds on the lineage of what is left."""
    named = [holds_up_to(each.log_start, each.segment.leader_epochs, ruling) for each in found]
    manifests, archive = max(named, default=None), highest_log_start(archived.log_starts, ruling)
    if archive is not None and (manifests is None or archive >= manifests):
        return archive, "archive"
    return manifests, "manifests"


def _gaps(
    coverage: Coverage, log_start: Offset | None, local_start: Offset | None, missing: tuple[RemoteSegment, ...]
) -> tuple[OffsetRange, ...]:
    """Up to the local start where a broker told it, else up to the last offset that anything names."""
    ends = [piece.offsets.end for piece in coverage.owned] + [segment.offsets.end for segment in missing]
    end = local_start - 1 if local_start is not None else max(ends, default=-1)
    start = log_start if log_start is not None else min((p.offsets.start for p in coverage.owned), default=Offset(0))
    return tuple(coverage.gaps(OffsetRange(start, Offset(end)))) if end >= start else ()


def _sorted_out(
    gaps: tuple[OffsetRange, ...],
    coverage: Coverage,
    log_start: Offset | None,
    missing: tuple[RemoteSegment, ...],
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Gaps, and what is not proven to be one: a beginning without any segment, below what is restored.

    Retention or an order may have moved the log start past it, and that was not recorded yet. Above a restored segment
    it cannot be: no object goes whose delete is not archived, so the log start was not past that one.
    """
    first = gaps[:1] if log_start is not None and gaps and gaps[0].start == log_start else ()
    named = any(first[0].start <= each.offsets.end and each.offsets.start <= first[0].end for each in missing if first)
    beginning = bool(first) and not named and bool(coverage.owned)
    return (gaps[1:], first) if beginning else (gaps, ())


def elected_of(plan: PartitionPlan, fact_id: FactId, at: TimestampMs) -> LeaderElected:
    """The term that recover begins: by no broker, in the highest epoch there is, with the lineage of the segments.

    By the broker that it names, recover knows its own facts again.

    Its local start is the broker's where that told it, else the end of what is restored.
    """
    begins = plan.local_start
    if begins is None:
        begins = Offset(max((each.segment.offsets.end + 1 for each in plan.restored), default=plan.log_start or 0))
    return LeaderElected(plan.partition, plan.topic, plan.epoch, fact_id, RECOVERER, "", plan.lineage, begins, at)


def facts_of(plan: PartitionPlan, elected: LeaderElected, term: Term) -> Iterator[tuple[str, Fact]]:
    """Everything that follows the term's `LeaderElected`, each with the name of its step, in the order it is written.

    The same plan and term give the same facts again, so a recovery that was interrupted goes on where it stopped.
    """
    at = elected.elected_at
    for standing in plan.standing:
        yield "append standing", standing
    if plan.log_start is not None:
        lineage = below(plan.lineage, plan.log_start)
        yield "append log-start", LogStartAdvanced(plan.partition, plan.log_start, term, 1, "recovered", at, lineage)
    # What the broker has no more was trimmed because it was copied, by a trim that was lost with the rest*: else what
    # was just restored looks cut by somebody else, and people are offered to delete it.
    yield "append trim-intended", LocalTrimIntended(plan.partition, elected.local_start, term, 2, at)
    for number, (found, reason) in enumerate(plan.deletes, start=3):
        subject = replace(found.segment, term=term)
        yield "append delete-started", SegmentDeleteStarted(subject, term, number, reason, at)
    for found in plan.restored:
        segment = replace(found.segment, term=term)
        attempt = CopyAttempt(
            partition=segment.partition,
            topic=segment.topic,
            segment_id=segment.segment_id,
            offsets=segment.offsets,
            object_key=segment.object_key,
            term=term,
            broker_id=segment.broker_id,
            started_at=found.started_at,
        )
        yield "append copy-started", SegmentCopyStarted(attempt)
        yield "append copy-finished", SegmentCopyFinished(segment)
