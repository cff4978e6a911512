"""What nobody finished or nobody knows: abandoned segments, and objects that no live fact names. Pure.

An abandoned segment is swept when this very process has seen it so for the whole grace; a fenced one whose copy was
finished, only when the leader has its offsets elsewhere*. An object is condemned only by a fact, live or archived, that
names its segment id*: no fact means another cluster, Kafka's own plugin or a lost history; it is counted and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..state.facts import DeleteReason, SegmentCopyFinished, SegmentDeleteFinished
from ..state.ids import RemoteSegmentId
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.routing import LocalBounds
from ..state.segment import SegmentState, Term
from ..storage.object_store import ObjectInfo
from ..storage.segment.keys import ObjectKeys, ObjectKind
from .expire_rule import StartDelete
from .trim_rule import doubt_of


@dataclass(frozen=True, slots=True)
class NoSweep:
    """Why nothing abandoned is swept now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """An object that no segment needs or nobody knows. ``condemned``: an accepted delete names its segment id."""

    found: ObjectInfo
    segment_id: RemoteSegmentId | None
    condemned: bool
    why: str


Seen = Mapping[RemoteSegmentId, float]
"""Abandoned segments, and when (monotonic seconds) this process first saw each as such."""


def still_abandoned(view: PartitionView, first_seen: Seen, now_s: float) -> dict[RemoteSegmentId, float]:
    """``first_seen`` brought up to this view. Begins empty in every process: no clock but its own counts."""
    abandoned = (each.segment_id for each in view.unsettled if each.state is SegmentState.ABANDONED)
    return {segment_id: first_seen.get(segment_id, now_s) for segment_id in abandoned}


def failed_attempt(view: PartitionView, term: Term | None) -> StartDelete | None:
    """An attempt of this very term that ended without its copy-finished being sent, and could not be taken back then.

    Asked between acts only, and one act at a time works on a partition, so none is in progress; had a copy-finished
    been sent with an unknown outcome, the term would have ended.
    """
    if doubt_of(view) is not None:
        return None
    for segment in view.unsettled:
        if segment.state is SegmentState.COPY_SEGMENT_STARTED and segment.attempt and segment.attempt.term == term:
            return StartDelete(segment, DeleteReason.FAILED_ATTEMPT)
    return None


def next_sweep(
    view: PartitionView,
    bounds: LocalBounds,
    own: Collection[RemoteSegmentId],
    first_seen: Seen,
    now_s: float,
    grace_s: float,
) -> StartDelete | NoSweep:
    """``own``: attempts in progress of this very process. ``grace_s``: twice what an attempt may take (`copier.py`)."""
    doubt = doubt_of(view)
    if doubt is not None:
        return NoSweep(doubt)
    reasons = []
    for segment in view.unsettled:
        if segment.state is not SegmentState.ABANDONED or segment.segment_id in own or segment.subject is None:
            continue
        left = grace_s - (now_s - first_seen.get(segment.segment_id, now_s))
        kept = f"it is watched for another {left:.0f} s" if left > 0 else only_copy(view, segment, bounds)
        if kept is None:
            return StartDelete(segment, DeleteReason.ABANDONED)
        reasons.append(f"segment {segment.segment_id}: {kept}")
    if not reasons:
        return NoSweep("no segment is abandoned")
    return NoSweep(f"{len(reasons)} abandoned segments stay; {reasons[0]}")


def only_copy(view: PartitionView, segment: SegmentMeaning, bounds: LocalBounds) -> str | None:
    """Which offsets of a finished copy would be lost with it; None when the leader has them all elsewhere*.

    *A copy that was finished but fenced may be the last of its offsets, when what was trimmed for it is gone.
    """
    if segment.subject is None or not any(isinstance(live.fact, SegmentCopyFinished) for live in segment.facts):
        return None
    start = max(segment.subject.offsets.start, view.log_start or 0)
    if start > segment.subject.offsets.end:
        return None
    for gap in view.coverage.gaps(OffsetRange(Offset(start), segment.subject.offsets.end)):
        if gap.start < bounds.local_start or gap.end >= bounds.high_watermark:
            return f"its offsets {gap} may be nowhere else"
    return None


def classify(
    listed: Iterable[ObjectInfo],
    keys: ObjectKeys,
    view: PartitionView,
    condemned_in_archive: Callable[[RemoteSegmentId], bool],
) -> list[Finding]:
    """What was listed, less what the facts of this partition account for. ``view``: captured after the listing.

    ``condemned_in_archive``: whether the archive of this tier-state topic has an accepted delete of that segment id.
    """
    findings = [finding for each in listed if (finding := _judge(each, keys, view, condemned_in_archive)) is not None]
    # of one segment the manifest goes first: what is half deleted is never taken for a segment
    return sorted(findings, key=lambda each: (each.segment_id or "", not each.found.key.endswith(ObjectKind.MANIFEST)))


def _judge(
    found: ObjectInfo,
    keys: ObjectKeys,
    view: PartitionView,
    condemned_in_archive: Callable[[RemoteSegmentId], bool],
) -> Finding | None:
    parsed = keys.parse(found.key)
    if parsed is None or parsed.partition != view.partition:
        return Finding(found, None, False, "no name of an object of this partition")
    segment = view.segments.get(parsed.segment_id)
    if segment is not None and segment.subject is not None:
        if segment.subject.object_key != parsed.base_key:
            return Finding(found, parsed.segment_id, False, "its segment id belongs to another object")
        if segment.state is not SegmentState.DELETE_SEGMENT_FINISHED:
            return None
        if is_deleted(segment):
            return Finding(found, parsed.segment_id, True, "its segment was deleted")
    if condemned_in_archive(parsed.segment_id):
        return Finding(found, parsed.segment_id, True, "its segment was deleted, says the archive")
    return Finding(found, parsed.segment_id, False, "no fact names its segment")


def is_deleted(segment: SegmentMeaning) -> bool:
    """An accepted fact says that the objects are gone: whatever is there landed after it. A fenced one says nothing."""
    finished = (live for live in segment.facts if isinstance(live.fact, SegmentDeleteFinished))
    return any(live.key not in segment.fenced for live in finished)
