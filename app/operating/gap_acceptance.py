"""Accept that records are missing from both tiers: show the gaps, and refuse if records may still be restored."""

from __future__ import annotations

from dataclasses import dataclass

from ...broker.control import BrokerControl
from ...follower.follower import Follower
from ...leader.recover_scan import DamagedManifest, scan_bucket
from ...rules.missing import objects_of
from ...rules.recovery import FoundSegment
from ...rules.trim import doubt_of
from ...runtime.clock import Clock
from ...runtime.id_source import IdSource
from ...state.errors import BrokerUnavailable, InvalidRequest, ObjectNotFound
from ...state.facts import GapAccepted
from ...state.ids import FactId, TopicIdPartition
from ...state.lineage import below, readable_ranges
from ...state.object_keys import ObjectKeys
from ...state.offsets import Offset, OffsetRange
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds, in_force
from ...state.segment import RemoteSegment, SegmentState
from ...storage.object_store import ObjectReader
from ..opening.partitions import both_tiers_now
from .orders import issuer

CONDEMNED = {SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED}


@dataclass(frozen=True, slots=True)
class Gaps:
    """Open gaps of a partition: offsets above the log start that neither tier has and no person accepted."""

    view: PartitionView
    bounds: LocalBounds
    open: tuple[OffsetRange, ...]


def gaps_now(broker: BrokerControl, follower: Follower, topic: str, partition: TopicIdPartition) -> Gaps:
    """Return the open gaps. Raises BrokerUnavailable if the broker does not report its offsets."""
    bounds, view = both_tiers_now(broker, follower, topic, partition)
    if bounds is None:
        raise BrokerUnavailable("the broker does not say what it has", topic=topic, partition=partition.partition)
    start = view.log_start
    if start is None or start >= bounds.local_start:
        return Gaps(view, bounds, ())
    return Gaps(view, bounds, tuple(view.open_gaps(OffsetRange(start, Offset(bounds.local_start - 1)))))


def require_gone(gaps: Gaps, offsets: OffsetRange, store: ObjectReader, names: ObjectKeys) -> None:
    """Raise InvalidRequest, with the reason, unless all ``offsets`` are certainly missing from both tiers.

    Otherwise readers would skip records that can still be restored. Reads the bucket: one LIST of the partition's
    folder, and its manifests. Also raises the errors of these reads.
    """
    view = gaps.view
    why = _lost_object(view, offsets, store) or _why_not(gaps, offsets) or _found_in_bucket(view, offsets, store, names)
    if why is not None:
        raise InvalidRequest(f"the gap cannot be accepted: {why}", offsets=offsets, topic=view.topic)


def _lost_object(view: PartitionView, offsets: OffsetRange, store: ObjectReader) -> str | None:
    """Return a sentence on the first missing object. Readers request it until a fact marks its segment as deleted."""
    for owned in view.coverage.within(offsets):
        for key in objects_of(owned.segment):
            try:
                store.head(key)
            except ObjectNotFound:
                place, behind = f"{view.topic}:{view.partition.partition}", owned.segment.offsets.end + 1
                return (
                    f"{key} is missing, so segment {owned.segment.segment_id} is damaged: restore the object from a"
                    f" version of the bucket or from a backup. If it is lost for good, tierstate delete-records {place}"
                    f" --before {behind} gives it up, and all records below it"
                )
    return None


def _why_not(gaps: Gaps, offsets: OffsetRange) -> str | None:
    view, bounds = gaps.view, gaps.bounds
    doubt = doubt_of(view)
    if doubt is not None:
        return doubt.text
    if not in_force(view, bounds):
        return "the agent of the broker that leads has not begun its term: start it"
    if not any(gap.start <= offsets.start and offsets.end <= gap.end for gap in gaps.open):
        shown = ", ".join(map(str, gaps.open)) or "none"
        return f"not all of these offsets are missing from both tiers; missing are: {shown}"
    for segment in view.segments.values():
        if segment.remote is not None and segment.state not in CONDEMNED and _claims(segment.remote, offsets):
            return f"segment {segment.segment_id} has {segment.remote.offsets}, and its state is {segment.state}"
    return None


def _found_in_bucket(view: PartitionView, offsets: OffsetRange, store: ObjectReader, names: ObjectKeys) -> str | None:
    place = view.partition
    for each in scan_bucket(store, names.partition_prefix(view.topic or "", place.topic_id, place.partition)):
        if isinstance(each, DamagedManifest):
            return f"{each.key} is damaged, so what it has is unknown: {each.problem}"
        if isinstance(each, FoundSegment) and _claims(each.segment, offsets):
            segment = view.segments.get(each.segment.segment_id)
            if segment is None or segment.state not in CONDEMNED:
                return (
                    f"the bucket has {each.segment.offsets} in {each.segment.object_key}, which no fact makes readable"
                )
    return None


def _claims(segment: RemoteSegment, offsets: OffsetRange) -> bool:
    """Return whether a segment has a leader epoch for any of these offsets.

    If its first records were deleted on the broker, a segment is still copied completely, but claims none of them.
    """
    return any(part.overlap(offsets) for part in readable_ranges(segment, segment.leader_epochs))


def acceptance(view: PartitionView, offsets: OffsetRange, reason: str, clock: Clock, ids: IdSource) -> GapAccepted:
    """Return the fact, with the lineage of the term in force up to the end of ``offsets``."""
    lineage = below(view.lineage, Offset(offsets.end + 1))
    number = FactId.of(ids.uuid())
    return GapAccepted(view.partition, number, offsets, lineage, reason, issuer(), clock.now_ms())
