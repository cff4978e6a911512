"""Finds segments that are whole in the bucket although no fact tells how their copy ended: facts were lost. Pure.

An attempt writes its manifest last and reports the copy right after it, so a whole segment without facts, or with its
copy-started alone, is no orphan*: the end of the tier-state topic may have been lost in a power cut. Only a segment
that a recovery would make readable counts, and only for offsets that left the broker and that no other segment has:
offsets that the broker still has are copied again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..state.facts import SegmentCopyStarted
from ..state.ids import RemoteSegmentId
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView, SegmentMeaning
from .reasons import Reason, Why
from .recovery import ArchivedPartition, FoundSegment, PartitionPlan, plan_partition


def is_unfinished(segment: SegmentMeaning) -> bool:
    """Return whether the only facts are that the copy began: the fact about its end may be lost."""
    return bool(segment.facts) and all(isinstance(live.fact, SegmentCopyStarted) for live in segment.facts)


def is_unknown(segments: Mapping[RemoteSegmentId, SegmentMeaning], segment_id: RemoteSegmentId) -> bool:
    """Return whether no fact records the outcome of the copy of this segment."""
    segment = segments.get(segment_id)
    return segment is None or is_unfinished(segment)


@dataclass(frozen=True, slots=True)
class LostFacts:
    """The segments to add to the facts of one partition. ``plan`` is the plan of the whole partition.

    ``is_segment_missing``: a readable segment was not listed.
    """

    plan: PartitionPlan
    segments: tuple[FoundSegment, ...]
    is_segment_missing: bool = False

    @property
    def offsets(self) -> OffsetRange | None:
        """Return the range from the first to the last offset of the segments; None if nothing is lost."""
        if not self.segments:
            return None
        ranges = [each.segment.offsets for each in self.segments]
        return OffsetRange(min(each.start for each in ranges), max(each.end for each in ranges))


def holes(view: PartitionView, local_start: Offset | None) -> list[OffsetRange]:
    """Return the offsets from the log start to the broker's start that no readable segment has."""
    start = view.log_start
    if start is None or local_start is None or start >= local_start:
        return []
    return view.coverage.gaps(OffsetRange(start, Offset(local_start - 1)))


def lost_facts(
    view: PartitionView,
    unknown: Iterable[FoundSegment],
    archived: ArchivedPartition,
    local_start: Offset | None,
    left: Collection[RemoteSegmentId] = (),
) -> LostFacts:
    """Compare the whole segments of one LIST with the facts of a view that was captured after it.

    ``unknown``: the segments without facts, or with a copy-started alone. ``archived``: the facts, and the archive if
    it was read, for a recovery. ``local_start``: None if no broker reports it. ``left``: see `plan_partition`.
    """
    readable = [FoundSegment(each, each.copied_at, Offset(0), "", each.partition.topic_id) for each in view.readable]
    candidates = [each for each in unknown if is_unknown(view.segments, each.segment.segment_id)]
    archived = replace(archived, ignorable=())  # ignorable facts stay in their topic
    plan = plan_partition(view.partition, [*readable, *candidates], archived, local_start, left)
    added = [each for each in plan.restored if each in candidates]
    if view.log_start is not None and local_start is not None:
        empty = holes(view, local_start)
        added = [each for each in added if any(each.segment.offsets.overlap(hole) for hole in empty)]
    return LostFacts(plan, () if plan.refused else tuple(added))


def way_out(topic: str, partition: int) -> str:
    """Return the command that adds the lost facts."""
    return f"stop every agent, then: tierstate recover {topic}:{partition} (docs/on-fire.md#facts-are-lost)"


def why_lost(lost: LostFacts, topic: str) -> Why | None:
    """Return why nothing is deleted: facts are lost, and a recovery adds them. None if nothing is lost."""
    if lost.offsets is None:
        return None
    text = (
        f"facts are lost: no fact finishes the copy of offsets {lost.offsets}, and the bucket has it whole "
        f"(segments: {len(lost.segments)}); nothing is deleted meanwhile; "
        f"{way_out(topic, lost.plan.partition.partition)}"
    )
    return Why(Reason.TIER_STATE_LOST, text)
