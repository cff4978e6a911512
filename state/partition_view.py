"""The view of a partition: the result of `meaning.py`, and what follows from it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from .coverage import Coverage
from .epochs import Lineage
from .errors import UpgradeNeeded
from .facts import (
    ContradictionSettled,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LiveFact,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
)
from .ids import RemoteSegmentId, TopicIdPartition
from .lineage import highest_log_start, holds_up_to, last_common, settles
from .offsets import Offset, OffsetRange, Position
from .segment import CopyAttempt, RemoteSegment, SegmentState, Term

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class SegmentMeaning:
    """The meaning of one segment id in the live set. ``remote`` is its descriptor, if a fact contains one.

    ``position`` is that of its newest fact, ``fenced`` are the keys of its fenced facts. ``deleting`` is its first
    accepted delete-started that is still live. ``facts`` are all its facts, in order of position.
    """

    segment_id: RemoteSegmentId
    state: SegmentState
    attempt: CopyAttempt | None
    remote: RemoteSegment | None
    position: Position
    contradiction: str | None = None
    fenced: tuple[str, ...] = ()
    deleting: LiveFact | None = None
    facts: tuple[LiveFact, ...] = ()

    @property
    def subject(self) -> CopyAttempt | RemoteSegment | None:
        """Return the most complete description of the segment; None if no fact describes it."""
        return self.remote or self.attempt


@dataclass(frozen=True, slots=True)
class PartitionView:
    """All that the live set shows about one partition. If it is empty, nothing is tiered and there is no leader.

    ``term`` is the term in force. ``leader`` is the highest `LeaderElected` that this version can read. ``others`` are
    the facts about no segment, in order of position. ``unsettled`` are the segments in any state but readable.
    ``log_start`` is how far the accepted ``log_starts`` hold on the lineage in force; None if there are none.
    """

    partition: TopicIdPartition
    topic: str | None = None
    leader: LeaderElected | None = None
    term: Term | None = None
    segments: Mapping[RemoteSegmentId, SegmentMeaning] = field(default_factory=dict)
    unsettled: tuple[SegmentMeaning, ...] = ()
    others: tuple[LiveFact, ...] = ()
    readable: tuple[RemoteSegment, ...] = ()
    coverage: Coverage = field(default_factory=lambda: Coverage((), Lineage()))
    log_start: Offset | None = None
    log_starts: tuple[LogStartAdvanced, ...] = ()
    trim_intended: Offset | None = None
    orders: tuple[OperatorOrder, ...] = ()
    leases: tuple[ReaderLease, ...] = ()
    holds: tuple[IntegrityHold, ...] = ()
    missing: tuple[PartitionMissing, ...] = ()
    deleted: PartitionDeleted | None = None
    fenced: frozenset[str] = frozenset()
    degraded: tuple[str, ...] = ()
    """One text for each fact that this version cannot read and must not ignore."""
    later: tuple[str, ...] = ()
    """The entries of ``degraded`` that a later release wrote: they are not lost, but reading them needs an upgrade."""
    contradictions: tuple[str, ...] = ()
    """Contradictions that no person has settled."""
    settled: tuple[ContradictionSettled, ...] = ()
    settled_lineages: tuple[LineageSettled, ...] = ()
    accepted_gaps: tuple[GapAccepted, ...] = ()
    """Gaps that people accepted. They do not count as coverage: copying, trimming and sweeping ignore them."""
    kept: frozenset[RemoteSegmentId] = frozenset()
    """Segments whose objects a person decided to keep, whatever their facts say."""

    @property
    def lineage(self) -> Lineage:
        """Return the logical lineage of the term in force."""
        return self.leader.lineage if self.leader else Lineage()

    @property
    def lineage_unknown(self) -> bool:
        """Return whether remote offsets at or above the log start are below the lineage in force, in older epochs.

        No fact shows whether they belong to this log, so nothing is trimmed or expired. A log start of another log does
        not show it: it counts only for segments of its own branch. The result is False if a person settled that the
        offsets do not belong to this log.
        """
        return self.cannot_place(self.lineage)

    def cannot_place(self, lineage: Lineage) -> bool:
        """Return the value that `lineage_unknown` would have if this lineage were in force."""
        settled = any(settles(fact.lineage, lineage) for fact in self.settled_lineages)
        return not settled and self.leaves_unplaced(lineage)

    def leaves_unplaced(self, lineage: Lineage) -> bool:
        """Return the value that `cannot_place` would have without the lineages that people settled."""
        if not lineage.entries:
            return bool(self.readable)
        first = lineage.entries[0]
        known_from = self._log_start_known(lineage) or 0
        below = bisect_left(self.readable, first.start_offset, key=lambda segment: segment.offsets.start)
        for segment in islice(self.readable, below):
            epochs = segment.leader_epochs.entries
            if not epochs or epochs[0].epoch >= first.epoch:
                continue
            newer = [entry for entry in epochs if entry.epoch >= first.epoch]
            end = newer[0].start_offset - 1 if newer else segment.offsets.end
            expired = highest_log_start(self.log_starts, segment.leader_epochs) or 0
            if min(end, first.start_offset - 1) >= max(known_from, expired):
                return True
        return False

    def _log_start_known(self, lineage: Lineage) -> Offset | None:
        """Return the highest log start that holds here, among those whose lineage has the same log or is unrecorded."""
        facts = (
            fact
            for fact in self.log_starts
            if not fact.lineage.entries or last_common(fact.lineage, lineage) is not None
        )
        return highest_log_start(facts, lineage)

    @property
    def copied_to(self) -> Offset:
        """Return the highest remote offset (inclusive) without a gap from the log start; start - 1 if there is none."""
        return self.coverage.prefix_end(self.log_start or 0)

    @property
    def remote_bytes(self) -> int:
        """Return the size in bytes of all objects of readable segments."""
        return sum(segment.object_bytes for segment in self.readable)

    def gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Return `open_gaps`, or an empty list while facts of a later release may explain the gaps."""
        return [] if self.later else self.open_gaps(within)

    def gaps_between(self, start: Offset | None, local_start: int | None) -> list[OffsetRange]:
        """Return `gaps` from ``start`` to the broker's ``local_start``, exclusive. None: unknown, and without gaps."""
        if start is None or local_start is None or start >= local_start:
            return []
        return self.gaps(OffsetRange(start, Offset(local_start - 1)))

    def open_gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Return the offsets of ``within`` that no segment has and that no person accepted as a gap."""
        accepted = [offsets for _, offsets in self.gaps_in_force]
        return [rest for gap in self.coverage.gaps(within) for rest in gap.without(*accepted)]

    def skipped(self, within: OffsetRange) -> list[OffsetRange]:
        """Return the offsets of ``within`` that lie in accepted gaps. Readers skip those that are not on the broker."""
        open_gaps = self.open_gaps(within)
        return [rest for gap in self.coverage.gaps(within) for rest in gap.without(*open_gaps)]

    @property
    def gaps_in_force(self) -> list[tuple[GapAccepted, OffsetRange]]:
        """Return each accepted gap with the offsets for which it holds on the lineage in force.

        Another branch of the log may have records at the other offsets, and no person accepted their loss.
        """
        gaps = []
        for fact in self.accepted_gaps:
            if last_common(fact.lineage, self.lineage) is not None:
                end = holds_up_to(Offset(fact.offsets.end + 1), fact.lineage, self.lineage) - 1
                if end >= fact.offsets.start:
                    gaps.append((fact, OffsetRange(fact.offsets.start, Offset(end))))
        return gaps

    def accepted_to(self, offset: int) -> Offset | None:
        """Return the last offset of the accepted gap that contains this one, or None if there is none."""
        return max((gap.end for _, gap in self.gaps_in_force if gap.start <= offset <= gap.end), default=None)

    def of_kind(self, kind: type[F]) -> list[tuple[LiveFact, F]]:
        """Return the facts of a kind that is about no segment, with key and position, in order of position."""
        return [(live, live.fact) for live in self.others if isinstance(live.fact, kind)]

    def in_state(self, state: SegmentState) -> list[SegmentMeaning]:
        return [segment for segment in self.segments.values() if segment.state is state]


def require_readable(view: PartitionView, topic: str | None) -> None:
    """Raise UpgradeNeeded if a later release wrote a fact of this partition that must not be ignored.

    Such a fact may be a log start, a copy, a deletion, or the acceptance of a gap. Requests that the other facts can
    answer are answered. A gap, a missing object or a missing log start raises this error: the fact may explain it, so
    nothing is lost and a recovery would be wrong.
    """
    if view.later:
        more = f" (and {len(view.later) - 1} more)" if len(view.later) > 1 else ""
        raise UpgradeNeeded(
            f"a later release wrote facts of this partition: upgrade this process; {view.later[0]}{more}",
            topic=topic or view.topic,
            partition=view.partition.partition,
        )
