"""Finds segments that are complete in the bucket although no fact records the outcome of their copy. Pure.

An attempt writes its manifest last and reports the copy right after it. So a complete segment without facts, or with
its copy-started alone, is not an orphan: the end of the tier-state topic may have been lost in a power cut. The
segment is reported only if a recovery would make it readable, and only for offsets that neither the broker nor a
readable segment has. Offsets that the broker still has are copied again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..state.facts import SegmentCopyStarted
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import RemoteSegment
from .reasons import Reason, Why
from .recovery import ArchivedPartition, FoundSegment, PartitionPlan, plan_partition


def is_unfinished(segment: SegmentMeaning) -> bool:
    """Return whether all facts are that the copy began. The fact that ended the copy may have been lost."""
    return bool(segment.facts) and all(isinstance(live.fact, SegmentCopyStarted) for live in segment.facts)


def is_unknown(segments: Mapping[RemoteSegmentId, SegmentMeaning], segment_id: RemoteSegmentId) -> bool:
    """Return whether no fact records the outcome of the copy of this segment."""
    segment = segments.get(segment_id)
    return segment is None or is_unfinished(segment)


@dataclass(frozen=True, slots=True)
class LostFacts:
    """The segments that a recovery would add to the facts of one partition. ``plan``: its plan of the whole partition.

    ``is_segment_missing``: whether a listing lacked a readable segment.
    """

    plan: PartitionPlan
    segments: tuple[FoundSegment, ...]
    is_segment_missing: bool = False

    @property
    def offsets(self) -> OffsetRange | None:
        """Return the range from the first to the last offset of the segments, or None if there are no segments."""
        if not self.segments:
            return None
        ranges = [each.segment.offsets for each in self.segments]
        return OffsetRange(min(each.start for each in ranges), max(each.end for each in ranges))


def holes(view: PartitionView, local_start: Offset | None) -> list[OffsetRange]:
    """Return the ranges between the log start and the broker's local start that no readable segment has."""
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
    """Return the complete segments of one LIST whose facts are lost, by a view that was captured after the LIST.

    ``unknown``: complete segments without facts, or with a copy-started alone. ``archived``: the facts, and the archive
    if it was read, for the plan. ``local_start``: None if no broker reports it. ``left``: segments of a lost history.
    """
    readable = readable_of(view)
    candidates = [each for each in unknown if is_unknown(view.segments, each.segment.segment_id)]
    archived = replace(archived, ignorable=())  # ignorable facts stay in their topic
    plan = plan_partition(view.partition, [*readable, *candidates], archived, local_start, left)
    added = [each for each in plan.restored if each in candidates]
    if view.log_start is not None and local_start is not None:
        empty = holes(view, local_start)
        added = [each for each in added if any(each.segment.offsets.overlap(hole) for hole in empty)]
    return LostFacts(plan, () if plan.refused else tuple(added))


def readable_of(view: PartitionView) -> list[FoundSegment]:
    """Return the readable segments of a view in the form in which a plan takes them."""
    return [FoundSegment(each, each.copied_at, Offset(0), "", each.partition.topic_id) for each in view.readable]


def way_out(topic: str, partition: int) -> str:
    """Return the instruction with the command that adds the lost facts."""
    return f"stop every agent, then: tierstate recover {topic}:{partition} (docs/on-fire.md#facts-are-lost)"


def why_lost(lost: LostFacts, topic: str) -> Why | None:
    """Return the reason to delete nothing while a recovery could add lost facts; None if nothing is lost."""
    if lost.offsets is None:
        return None
    text = (
        f"facts are lost: no fact finishes the copy of offsets {lost.offsets}, and the bucket has it whole "
        f"(segments: {len(lost.segments)}); nothing is deleted meanwhile; "
        f"{way_out(topic, lost.plan.partition.partition)}"
    )
    return Why(Reason.TIER_STATE_LOST, text)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The effects of a lost history of the tier-state topic on one partition, as the topic's current facts show them.

    ``left``: segments that are complete in the bucket and that no fact names: the lost history copied them. One that
    the current history swept has no manifest. ``gone``: segments that are readable by the facts and not complete in the
    bucket: the lost history deleted them.
    """

    view: PartitionView
    left: tuple[RemoteSegment, ...]
    gone: tuple[RemoteSegment, ...]

    @property
    def partition(self) -> TopicIdPartition:
        return self.view.partition


def aftermath_of(views: Iterable[PartitionView], findings: Iterable[FoundSegment]) -> list[Aftermath]:
    """Return the result for each partition. ``findings``: segments of this tier-state topic, listed before the views
    were read. Otherwise segments that are copied at this moment would look like segments of the lost history.
    """
    by_partition: dict[TopicIdPartition, list[RemoteSegment]] = {}
    for each in findings:
        by_partition.setdefault(each.segment.partition, []).append(each.segment)
    view_of = {view.partition: view for view in views}
    return [
        _aftermath(view_of.get(partition) or PartitionView(partition), by_partition.get(partition, []))
        for partition in sorted(view_of.keys() | by_partition.keys())
    ]


def _aftermath(view: PartitionView, segments: list[RemoteSegment]) -> Aftermath:
    segment_ids = {each.segment_id for each in segments}
    return Aftermath(
        view,
        tuple(each for each in segments if each.segment_id not in view.segments),
        tuple(each for each in view.readable if each.segment_id not in segment_ids),
    )
