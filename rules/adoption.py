"""Plans what a partition can adopt of another writer's segments, and what is believed once they were proven. Pure.

Adopted segments are the past of one log: a plan of a recovery (`recovery.py`) decides which segments belong to it.
Nothing behind a hole is believed, unless a person asks for it. A segment that facts delete is never adopted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.lineage import readable_ranges
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment
from .lost_facts import LostFacts, is_unfinished, is_unknown, readable_of
from .recovery import ArchivedPartition, FoundSegment, PartitionPlan, Verdict, plan_partition


@dataclass(frozen=True, slots=True)
class Proposal:
    """``plan``: of all segments, as if each was proven. ``new``: those to adopt, in order of offsets. ``behind``: those
    that are not adopted because they lie behind a hole. ``readable``: those that facts have already.
    """

    plan: PartitionPlan
    new: tuple[FoundSegment, ...]
    behind: tuple[FoundSegment, ...]
    readable: tuple[FoundSegment, ...]
    archived: ArchivedPartition
    left: Collection[RemoteSegmentId] = ()

    def later(self, segment: RemoteSegment) -> list[RemoteSegment]:
        """Return the segments that continue the log behind this one, each where the one before ends."""
        following, end = list[RemoteSegment](), segment.offsets.end
        for each in self.plan.restored:
            if each.segment.offsets.start == end + 1:
                following.append(each.segment)
                end = each.segment.offsets.end
        return following

    def shared(
        self, segment: RemoteSegment, proven: Iterable[FoundSegment]
    ) -> tuple[list[tuple[RemoteSegment, OffsetRange]], list[tuple[RemoteSegment, OffsetRange]]]:
        """Return the other segments of this log that have some of its offsets, and those: their bytes must agree.

        The first list has segments in this bucket: readable ones, and those that were ``proven`` so far. The second
        has those that are not adopted because others have all of their offsets.
        """

        def pairs(segments: Iterable[RemoteSegment]) -> list[tuple[RemoteSegment, OffsetRange]]:
            near = (each for each in segments if each.offsets.overlap(segment.offsets))
            shared = ((each, _shared(each, segment, self.plan)) for each in near)
            return [(each, offsets) for each, offsets in shared if offsets is not None]

        own = pairs(each.segment for each in (*self.readable, *proven))
        return own, pairs(each.segment for each in self.plan.of(Verdict.LOST))

    def believed(self, proven: Iterable[FoundSegment]) -> LostFacts:
        """Return the facts to add for the segments that were copied and proven."""
        proven = tuple(proven)
        local_start, findings = self.plan.local_start, [*self.readable, *proven]
        plan = plan_partition(self.plan.partition, findings, self.archived, local_start, self.left)
        ids = {each.segment.segment_id for each in proven}
        return LostFacts(plan, tuple(each for each in plan.restored if each.segment.segment_id in ids))


def _shared(one: RemoteSegment, other: RemoteSegment, plan: PartitionPlan) -> OffsetRange | None:
    theirs = readable_ranges(other, plan.lineage)
    overlaps = (mine.overlap(each) for mine in readable_ranges(one, plan.lineage) for each in theirs)
    return next((each for each in overlaps if each is not None), None)


def propose(
    view: PartitionView,
    findings: Iterable[FoundSegment],
    archived: ArchivedPartition,
    local_start: Offset | None,
    left: Collection[RemoteSegmentId] = (),
    *,
    past_holes: bool = False,
) -> Proposal:
    """Return what the partition can adopt. ``view``: its facts. ``findings``: the other writer's segments.

    ``archived``: what the view and the other writer's archive record. ``left``: as for `plan_partition`.
    """
    # a copy-started alone is from an adoption that died: the segment is as new as one without facts
    begun = {sid for sid, segment in view.segments.items() if is_unfinished(segment)}
    states = {sid: state for sid, state in archived.states.items() if sid not in begun}
    archived = replace(archived, states=states, unfinished=archived.unfinished - begun)
    readable = tuple(readable_of(view))
    candidates = [each for each in findings if is_unknown(view.segments, each.segment.segment_id)]
    plan = plan_partition(view.partition, [*readable, *candidates], archived, local_start, left)
    ids = {each.segment.segment_id for each in candidates}
    new = [] if plan.refused else [each for each in plan.restored if each.segment.segment_id in ids]
    first = min((each.segment.offsets.start for each in plan.restored), default=Offset(0))
    holes = [each.start for each in (*plan.gaps, *plan.unproven) if each.start > first]
    end = min(holes, default=None)
    at = len(new) if past_holes or end is None else sum(each.segment.offsets.start <= end for each in new)
    return Proposal(plan, tuple(new[:at]), tuple(new[at:]), readable, archived, left)


def contradicted(proposal: Proposal, confirmed: Offset) -> Proposal:
    """Return the proposal, refused if the leader's log leaves this history before its end.

    ``confirmed``: up to where the leader's epochs agree (`lineage.confirmed_end`); 0 proves nothing.
    """
    end = max((each.segment.offsets.end for each in proposal.new), default=Offset(-1))
    if not 0 < confirmed <= end:
        return proposal
    why = f"the leader's log has other leader epochs from offset {confirmed} on: the segments are another branch"
    return replace(proposal, plan=replace(proposal.plan, refused=why), new=(), behind=())


def with_log_starts(segments: Iterable[FoundSegment], kafkas: Mapping[TopicIdPartition, Offset]) -> list[FoundSegment]:
    """Return the segments with the log start of their partition: the first offset that a segment has, or Kafka's, in
    ``kafkas``, if it is higher. Aiven's manifests have none.
    """
    segments, starts = list(segments), dict[TopicIdPartition, Offset]()
    for each in segments:
        place, start = each.segment.partition, each.segment.offsets.start
        starts[place] = min(start, starts.get(place, start))
    starts = {place: max(start, kafkas.get(place, start)) for place, start in starts.items()}
    return [replace(each, log_start=starts[each.segment.partition]) for each in segments]
