"""A partition as everybody sees it: the result of `meaning.py`, and what can be read off it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from .coverage import Coverage, OwnedRange
from .epochs import Lineage
from .facts import LeaderElected, LiveFact, LogStartAdvanced, PartitionDeleted
from .ids import RemoteSegmentId, TopicIdPartition
from .lineage import highest_log_start, holds_up_to, last_common, settles
from .offsets import Offset, OffsetRange, Position
from .segment import CopyAttempt, RemoteSegment, SegmentState, Term
from .termless_facts import (
    ContradictionSettled,
    GapAccepted,
    IntegrityHold,
    LineageSettled,
    OperatorOrder,
    PartitionMissing,
    ReaderLease,
)


@dataclass(frozen=True, slots=True)
class SegmentMeaning:
    """One segment id as the live set has it. ``remote`` is the descriptor, once any fact carried it.

    ``position`` is that of its newest fact; ``fenced`` are the keys of its fenced facts; ``deleting`` is its first
    accepted delete-started, when that still stands; ``facts`` are all of them, in order of position.
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
        """The most that is known of it."""
        return self.remote or self.attempt


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Everything observable of one partition. An empty live set means: nothing is tiered, nobody leads.

    ``term`` is the one in force; ``leader`` the highest `LeaderElected` that this version can read; ``others`` are the
    facts about no segment, in order of position; ``unsettled`` the segments that are not readable, of any state.
    ``log_start`` is what holds of the accepted ``log_starts`` on the lineage in force; None where none is.
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
    """Every fact that this version cannot read and may not ignore."""
    later: tuple[str, ...] = ()
    """Those of ``degraded`` that a later release wrote: they are not lost, and only an upgrade reads them."""
    contradictions: tuple[str, ...] = ()
    """Those that no person settled."""
    settled: tuple[ContradictionSettled, ...] = ()
    settled_lineages: tuple[LineageSettled, ...] = ()
    accepted_gaps: tuple[GapAccepted, ...] = ()
    """What people accepted as gone. It covers nothing*: copying, trimming and sweeping never ask for it."""
    kept: frozenset[RemoteSegmentId] = frozenset()
    """Segments of which a person said that their objects stay, whatever their facts say."""

    @property
    def lineage(self) -> Lineage:
        """The logical lineage of the term in force."""
        return self.leader.lineage if self.leader else Lineage()

    @property
    def lineage_unknown(self) -> bool:
        """Remote offsets at or above the log start lie below the lineage in force, in epochs older than its first.

        Nothing says whether they belong to this log: no trim, no expiry. Nor does a log start that was said in a
        lineage which has nothing in common with the one in force say it*: then that of their own branch counts. Not
        where a person said that they do not belong.
        """
        return self.cannot_place(self.lineage)

    def cannot_place(self, lineage: Lineage) -> bool:
        """`lineage_unknown`, if this lineage were in force."""
        settled = any(settles(fact.lineage, lineage) for fact in self.settled_lineages)
        return not settled and self.leaves_unplaced(lineage)

    def leaves_unplaced(self, lineage: Lineage) -> bool:
        """`cannot_place`, whatever people settled."""
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
        """Of the log starts whose lineage shows that they are about the log of this one."""
        said = (
            fact
            for fact in self.log_starts
            if not fact.lineage.entries or last_common(fact.lineage, lineage) is not None
        )
        return highest_log_start(said, lineage)

    @property
    def copied_to(self) -> Offset:
        """Highest offset in remote storage reached without a gap from the log start; start - 1 when none."""
        return self.coverage.prefix_end(self.log_start or 0)

    @property
    def remote_bytes(self) -> int:
        """What the store holds for readable segments."""
        return sum(segment.object_bytes for segment in self.readable)

    def gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """`open_gaps`; none while facts of a later release may be about them*."""
        return [] if self.later else self.open_gaps(within)

    def open_gaps(self, within: OffsetRange) -> list[OffsetRange]:
        """Offsets of ``within`` that no segment has and no person accepted as gone."""
        gaps = self.coverage.gaps(within)
        for _, accepted in self.gaps_in_force:
            gaps = [rest for gap in gaps for rest in gap.without(accepted)]
        return gaps

    def skipped(self, within: OffsetRange) -> list[OffsetRange]:
        """Return what of ``within`` no segment has and a person accepted as gone. Readers skip what is not local."""
        gaps = self.coverage.gaps(within)
        for gap in self.open_gaps(within):
            gaps = [rest for each in gaps for rest in each.without(gap)]
        return gaps

    @property
    def gaps_in_force(self) -> list[tuple[GapAccepted, OffsetRange]]:
        """Each accepted gap, and what of it holds on the lineage in force*.

        Another branch of the log may have records there, which no person accepted as gone.
        """
        found = []
        for fact in self.accepted_gaps:
            if last_common(fact.lineage, self.lineage) is not None:
                end = holds_up_to(Offset(fact.offsets.end + 1), fact.lineage, self.lineage) - 1
                if end >= fact.offsets.start:
                    found.append((fact, OffsetRange(fact.offsets.start, Offset(end))))
        return found

    def accepted_to(self, offset: int) -> Offset | None:
        """The last offset of the accepted gap that has this one; None where none has."""
        return max((gap.end for _, gap in self.gaps_in_force if gap.start <= offset <= gap.end), default=None)

    def in_range(self, offsets: OffsetRange) -> list[OwnedRange]:
        """Who owns these offsets, in order; where nobody does is a gap."""
        return self.coverage.within(offsets)

    def at_time(self, timestamp_ms: int) -> OwnedRange | None:
        """The first that may have a record of this time or later."""
        return next((owned for owned in self.coverage.owned if owned.segment.max_timestamp >= timestamp_ms), None)

    def in_state(self, state: SegmentState) -> list[SegmentMeaning]:
        return [segment for segment in self.segments.values() if segment.state is state]
