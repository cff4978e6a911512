"""Plans what can be restored from a bucket alone, from manifests and archived facts. Pure.

The archive comes first: segments that are deleted or abandoned in it stay so, finished ones are restored, and its log
starts, orders and holds apply. If the archive does not name a segment (or there is none), the manifest decides:

    segment                             verdict     decided by
    ends below the log start            unproven    the highest log start that a manifest or an archived fact names
    owns no offset of the lineage       lost        the lineage of the segments that later terms copied
    of a lost history                   lost        a person's decision when the next one began (`lost_facts.py`)
    otherwise                           restored

An attempt that never finished stays abandoned, unless its manifest exists and it has offsets that neither the broker
nor another segment has*: then the fact that finished it was lost with the end of the topic.
The lineage is built from the segments' own epochs, those of later terms first. Every segment that a term copied was in
that term's log. So if two segments contradict each other, the log of the later term is the one that continued.
A log start counts as far as it holds on that lineage*: a new log does not begin where the lost one did. A manifest
names its log start in the epochs of its segment. Rules marked * prevent a loss (`docs/tier-state.md`).
The restored facts get a new term, never the Q of a manifest. Everything else of a descriptor stays the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..state.coverage import Coverage
from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.facts import (
    ContradictionSettled,
    DeleteReason,
    Fact,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteStarted,
)
from ..state.ids import RECOVERER, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.lifecycle import kept_segments
from ..state.lineage import below, highest_log_start, holds_up_to, readable_ranges
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.segment import CopyAttempt, RemoteSegment, SegmentState, Term

GONE = frozenset({SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED, SegmentState.ABANDONED})
"""The archived states of segments that are not restored."""

Standing = OperatorOrder | ReaderLease | IntegrityHold | LineageSettled | ContradictionSettled | GapAccepted
"""Facts that no term writes; they are restored unchanged."""


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A complete segment in the bucket, as its manifest describes it. ``log_start``: the partition's at that time."""

    segment: RemoteSegment
    started_at: TimestampMs
    log_start: Offset
    cluster_id: str
    tier_state_topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """The archive's record of a partition: its whole history, as far as it is archived.

    ``log_starts``: all accepted log starts. ``finished``: descriptors of the segments that were readable.
    ``unfinished``: abandoned segments without a fact that finished the copy. ``unreadable``: facts that this version
    cannot read and must not ignore. ``ignorable``: facts that it cannot read and may ignore; a new topic would lose
    them. ``addresses``: the management addresses of the agents of all its terms.
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
    """The kind of reason for which a segment in the bucket is not restored."""

    LOST = "lost"
    UNPROVEN = "unproven"
    DELETED = "deleted"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A complete segment that is not restored as readable."""

    segment: RemoteSegment
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition after the recovery. ``refused``: why nothing is written for it; ``ended``: it was deleted.

    ``deletes``: segments whose objects still exist although an archived fact deletes them: the delete is written again.
    ``missing``: segments that are readable in the archive, but not complete in the bucket. ``gaps``: offsets in no tier
    between the log start and the end of both tiers, as far as known. ``unproven``: such ranges that may be below the
    log start, because it may have moved after its last record. ``local_start``: the broker's; None if not reported.
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
        """Return whether any fact is written."""
        return self.refused is None and bool(
            self.restored or self.deletes or self.standing or self.log_start is not None
        )


def plan_partitions(
    findings: Iterable[FoundSegment],
    archive: Mapping[TopicIdPartition, ArchivedPartition],
    local_starts: Mapping[TopicIdPartition, Offset],
    left: Collection[RemoteSegmentId] = (),
) -> tuple[PartitionPlan, ...]:
    """Return the plans of all partitions that the bucket or the archive names. ``local_starts``: those that brokers
    reported. ``left``: segments that only a lost history knew.
    """
    by_partition: dict[TopicIdPartition, list[FoundSegment]] = {partition: [] for partition in archive}
    for each in findings:
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
    findings: list[FoundSegment],
    archived: ArchivedPartition,
    local_start: Offset | None = None,
    left: Collection[RemoteSegmentId] = (),
) -> PartitionPlan:
    """Return the plan of one partition. Unreadable archived facts may be deletes, so the plan is then refused."""
    findings = sorted(findings, key=lambda each: (each.segment.offsets, each.segment.segment_id))
    candidates = [each for each in findings if each.segment.segment_id not in left]
    standing = [each for each in candidates if archived.states.get(each.segment.segment_id) not in GONE]
    ruling = lineage_of([each.segment for each in standing], archived.leader)
    log_start, source = _log_start(candidates, archived, ruling)
    kept_ids = kept_segments([each for each in archived.standing if isinstance(each, ContradictionSettled)])
    certain, silent, unfinished, deletes, left_out = [], [], [], [], []
    for each in findings:
        match archived.states.get(each.segment.segment_id):
            case SegmentState.COPY_SEGMENT_FINISHED:
                certain.append(each)
            case SegmentState.DELETE_SEGMENT_STARTED | SegmentState.DELETE_SEGMENT_FINISHED as state:
                if each.segment.segment_id not in kept_ids:
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
    recoverable = [each for each in unfinished if each.segment.segment_id not in left and _fills(each.segment, holes)]
    if recoverable:
        silent += recoverable
        lineage, coverage = _covered((*certain, *silent), archived.leader)
    ended = [each for each in unfinished if each not in recoverable]
    left_out += [LeftOut(each.segment, Verdict.ABANDONED, "no fact says that its copy was finished") for each in ended]
    owners = {piece.segment.segment_id for piece in coverage.owned}
    lost = [each.segment for each in silent if each.segment.segment_id not in owners]
    left_out += [LeftOut(segment, Verdict.LOST, why_lost(segment, coverage)) for segment in lost]
    restored = [*certain, *(each for each in silent if each.segment.segment_id in owners)]
    restored.sort(key=lambda each: (each.segment.offsets, each.segment.segment_id))
    segment_ids = {each.segment.segment_id for each in findings}
    missing = tuple(segment for sid, segment in sorted(archived.finished.items()) if sid not in segment_ids)
    newest = max(findings, key=lambda each: each.segment.copied_at).segment.topic if findings else ""
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


def lineage_of(segments: Iterable[RemoteSegment], leader: LeaderElected | None = None) -> Lineage:
    """Return the lineage of the segments' own epochs. Epochs of later terms win: what contradicts them is cut off.

    ``leader``: the archived leader. Its lineage counts like that of a segment of its term.
    """
    claims: list[tuple[tuple[int, int, int, int], LeaderEpoch, int, int]] = []
    for segment in segments:
        order = (-segment.term.epoch, 1, -segment.term.position, segment.offsets.start)
        claims += [(order, *each) for each in _claims(segment.leader_epochs.entries, segment.offsets.end)]
    if leader is not None and leader.lineage.entries:
        entries = leader.lineage.entries  # the end of the last epoch is unknown: claim only its first offset
        claims += [((-leader.epoch, 0, 0, 0), *each) for each in _claims(entries, entries[-1].start_offset)]
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


def _covered(findings: Iterable[FoundSegment], leader: LeaderElected | None) -> tuple[Lineage, Coverage]:
    segments = tuple(each.segment for each in findings)
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
    """Return which epochs or segments have the offsets of this segment instead."""
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


def _log_start(findings: list[FoundSegment], archived: ArchivedPartition, ruling: Lineage) -> tuple[Offset | None, str]:
    """Return the highest log start that holds on the lineage ``ruling``, and where it is recorded."""
    log_starts = [holds_up_to(each.log_start, each.segment.leader_epochs, ruling) for each in findings]
    manifests, archive = max(log_starts, default=None), highest_log_start(archived.log_starts, ruling)
    if archive is not None and (manifests is None or archive >= manifests):
        return archive, "archive"
    return manifests, "manifests"


def _gaps(
    coverage: Coverage, log_start: Offset | None, local_start: Offset | None, missing: tuple[RemoteSegment, ...]
) -> tuple[OffsetRange, ...]:
    """Return the gaps up to the broker's local start, if known, else up to the last offset of any segment."""
    ends = [piece.offsets.end for piece in coverage.owned] + [segment.offsets.end for segment in missing]
    end = local_start - 1 if local_start is not None else max(ends, default=-1)
    start = log_start if log_start is not None else min((p.offsets.start for p in coverage.owned), default=Offset(0))
    return tuple(coverage.gaps(OffsetRange(start, Offset(end)))) if end >= start else ()


def _sorted_out(
    gaps: tuple[OffsetRange, ...], coverage: Coverage, log_start: Offset | None, missing: tuple[RemoteSegment, ...]
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Return the proven gaps and the unproven one: a range from the log start on, without any segment.

    Retention or an order may have moved the log start past that range without a record. This is impossible above a
    restored segment: no object is deleted before its delete is archived, so the log start had not passed that segment.
    """
    first = gaps[:1] if log_start is not None and gaps and gaps[0].start == log_start else ()
    named = any(first[0].start <= each.offsets.end and each.offsets.start <= first[0].end for each in missing if first)
    beginning = bool(first) and not named and bool(coverage.owned)
    return (gaps[1:], first) if beginning else (gaps, ())


def elected_of(plan: PartitionPlan, fact_id: FactId, at: TimestampMs) -> LeaderElected:
    """Return the `LeaderElected` of the recovery: in the highest known epoch, with the lineage of the segments.

    Its broker id is `RECOVERER`, so that a recovery recognises its own facts. Its local start is the broker's if one
    reported it, else the end of the restored segments.
    """
    begins = plan.local_start
    if begins is None:
        begins = Offset(max((each.segment.offsets.end + 1 for each in plan.restored), default=plan.log_start or 0))
    return LeaderElected(plan.partition, plan.topic, plan.epoch, fact_id, RECOVERER, "", plan.lineage, begins, at)


def facts_of(plan: PartitionPlan, elected: LeaderElected, term: Term) -> Iterator[tuple[str, Fact]]:
    """Iterate over the facts after the term's `LeaderElected`, each with the name of its step, in order of writing.

    The same plan and term give the same facts again, so an interrupted recovery continues where it stopped.
    """
    at = elected.elected_at
    for standing in plan.standing:
        yield "append standing", standing
    if plan.log_start is not None:
        lineage = below(plan.lineage, plan.log_start)
        yield "append log-start", LogStartAdvanced(plan.partition, plan.log_start, term, 1, "recovered", at, lineage)
    # Offsets that the broker no longer has were trimmed after their copy, by a trim whose fact was lost too. Without
    # this fact, the broker's log would look cut from outside, and people would be advised to delete the segments.
    yield "append trim-intended", LocalTrimIntended(plan.partition, elected.local_start, term, 2, at)
    for number, (entry, reason) in enumerate(plan.deletes, start=3):
        subject = replace(entry.segment, term=term)
        yield "append delete-started", SegmentDeleteStarted(subject, term, number, reason, at)
    for entry in plan.restored:
        segment = replace(entry.segment, term=term)
        attempt = CopyAttempt(
            partition=segment.partition,
            topic=segment.topic,
            segment_id=segment.segment_id,
            offsets=segment.offsets,
            object_key=segment.object_key,
            term=term,
            broker_id=segment.broker_id,
            started_at=entry.started_at,
        )
        yield "append copy-started", SegmentCopyStarted(attempt)
        yield "append copy-finished", SegmentCopyFinished(segment)
