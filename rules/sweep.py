"""Finds abandoned segments, and objects that no live fact names. Pure.

An abandoned segment is swept if this process has seen it as abandoned for the whole grace, and the leader has its
offsets elsewhere: the fact that finished its copy may have been lost (`lost_facts.py`). An object is condemned only by
a fact, live or archived, that names its segment id. An object without a fact comes from another cluster, Kafka's own
plugin, a lost history or lost facts; it is counted and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..state.facts import DeleteReason, SegmentDeleteFinished, SegmentDeleteStarted
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.lineage import highest_log_start
from ..state.object_keys import ObjectKeys, ObjectKind, ParsedObjectKey, not_own
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.routing import LocalBounds
from ..state.segment import SegmentState, Term
from .expire import StartDelete
from .reasons import lasting
from .trim import doubt_of


@dataclass(frozen=True, slots=True)
class UnneededObject:
    """An object that no segment needs or no fact names. ``condemned``: an accepted delete names its segment id."""

    info: ObjectInfo
    segment_id: RemoteSegmentId | None
    condemned: bool
    why: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """The stored parts of an upload that never ended; the other fields are as in `UnneededObject`."""

    upload: UnfinishedUpload
    segment_id: RemoteSegmentId | None
    condemned: bool
    why: str


@dataclass(frozen=True, slots=True)
class SweepOrphans:
    """The decision to delete objects that stayed condemned for a grace. ``keys``: object keys and upload ids."""

    keys: tuple[str, ...]


Seen = Mapping[RemoteSegmentId, float]
"""Abandoned segments, each with the time (monotonic seconds) at which this process first saw it as abandoned."""


def still_abandoned(view: PartitionView, first_seen: Seen, now_s: float) -> dict[RemoteSegmentId, float]:
    """Return ``first_seen`` updated to this view. It is empty at the start: only this process's clock counts."""
    abandoned = (each.segment_id for each in view.unsettled if each.state is SegmentState.ABANDONED)
    return {segment_id: first_seen.get(segment_id, now_s) for segment_id in abandoned}


def failed_attempt(view: PartitionView, term: Term | None, bounds: LocalBounds) -> StartDelete | None:
    """Return the delete of an attempt of this term that ended without a copy-finished; None if there is none.

    Called between steps only, one step at a time for a partition, so no attempt is in progress. A copy-finished with an
    unknown outcome would have ended the term. If the copy-finished was lost with the end of the topic, the segment may
    be the only copy.
    """
    if doubt_of(view) is not None:
        return None
    for segment in view.unsettled:
        attempt = segment.attempt
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED or attempt is None or attempt.term != term:
            continue
        if segment.segment_id in view.kept or not_own(attempt) or only_copy(view, segment, bounds):
            continue
        return StartDelete(segment, DeleteReason.FAILED_ATTEMPT)
    return None


def next_sweep(
    view: PartitionView, bounds: LocalBounds, first_seen: Seen, now_s: float, grace_s: float
) -> StartDelete | str:
    """Return the next abandoned segment to delete, or why there is none. No attempt of this process may be in progress.

    ``grace_s``: twice the maximum duration of an attempt in seconds (`leader/copier.py`).
    """
    if (doubt := doubt_of(view)) is not None:
        return doubt.text
    reasons = []
    for segment in view.unsettled:
        if segment.state is not SegmentState.ABANDONED or segment.subject is None:
            continue
        if segment.segment_id in view.kept:
            reasons.append(f"segment {segment.segment_id}: a person keeps its objects")
            continue
        remaining_s = grace_s - (now_s - first_seen.get(segment.segment_id, now_s))
        obstacle = f"it is watched for another {lasting(1000 * remaining_s)}" if remaining_s > 0 else None
        obstacle = obstacle or not_own(segment.subject) or only_copy(view, segment, bounds)
        if obstacle is None:
            return StartDelete(segment, DeleteReason.ABANDONED)
        reasons.append(f"segment {segment.segment_id}: {obstacle}")
    if not reasons:
        return "no segment is abandoned"
    return f"{len(reasons)} abandoned segments stay; {reasons[0]}"


def was_abandoned(segment: SegmentMeaning) -> bool:
    """Return whether the sweep condemned the segment."""
    fact = segment.deleting.fact if segment.deleting else None
    return isinstance(fact, SegmentDeleteStarted) and fact.reason is DeleteReason.ABANDONED


def only_copy(view: PartitionView, segment: SegmentMeaning, bounds: LocalBounds) -> str | None:
    """Return which offsets may be lost with the segment; None if the leader has all of them elsewhere.

    After a trim, a copy may be the last one of its offsets even if no accepted fact finished it: the copy-finished may
    be fenced, or lost with the end of the tier-state topic.
    """
    if segment.subject is None:
        return None
    log_start = view.log_start
    if segment.remote is not None:  # the log start of its own branch, where it may be the last copy
        log_start = highest_log_start(view.log_starts, segment.remote.leader_epochs)
    return nowhere_else(view, segment.subject.offsets, log_start, bounds)


def nowhere_else(
    view: PartitionView, offsets: OffsetRange, log_start: Offset | None, bounds: LocalBounds
) -> str | None:
    """Return a text about offsets from ``log_start`` on that neither another segment nor the leader has, or None."""
    start = max(offsets.start, log_start or 0)
    if start > offsets.end:
        return None
    for gap in view.coverage.gaps(OffsetRange(Offset(start), offsets.end)):
        if gap.start < bounds.local_start or gap.end >= bounds.high_watermark:
            return f"its offsets {gap} may be nowhere else"
    return None


ArchivedDeletes = Callable[[TopicIdPartition, Collection[RemoteSegmentId]], Mapping[RemoteSegmentId, str]]
"""Returns the base keys of those segment ids that an accepted delete-finished in the archive of this tier-state topic
names. Without an archive, or if the archive cannot be trusted, the result is empty.
"""


def no_archived_deletes(
    partition: TopicIdPartition, segment_ids: Collection[RemoteSegmentId]
) -> Mapping[RemoteSegmentId, str]:
    """Return no deletes: an `ArchivedDeletes` for clusters without an archive."""
    return {}


def classify(
    listed: Iterable[ObjectInfo], keys: ObjectKeys, view: PartitionView, archived_deletes: ArchivedDeletes
) -> list[UnneededObject]:
    """Return the listed objects that the facts of this partition do not need. ``view``: captured after the listing.

    ``keys``: the object keys below the folder that was listed.
    """
    infos = {each.key: each for each in listed}
    verdicts = _verdicts(infos, keys, view, archived_deletes)
    findings = [UnneededObject(infos[key], *verdict) for key, verdict in verdicts.items()]
    # the manifest of a segment is deleted first: a half deleted segment never looks like a complete one
    return sorted(findings, key=lambda each: (each.segment_id or "", not each.info.key.endswith(ObjectKind.MANIFEST)))


def classify_uploads(
    uploads: Iterable[UnfinishedUpload],
    keys: ObjectKeys,
    view: PartitionView,
    archived_deletes: ArchivedDeletes,
    older_than: TimestampMs,
) -> list[Leftover]:
    """Return uploads that began before ``older_than`` (by the store's clock) and that no attempt in progress needs.

    Like an object, an upload is condemned by a fact that names its segment. Others may belong to another program.
    """
    old = [each for each in uploads if each.started_at < older_than]
    verdicts = _verdicts([each.key for each in old], keys, view, archived_deletes, uploads=True)
    return [Leftover(each, *verdicts[each.key]) for each in old if each.key in verdicts]


_Verdict = tuple[RemoteSegmentId | None, bool, str]
"""The segment id in a key, whether the object or upload is condemned, and why."""


def _verdicts(
    names: Iterable[str],
    keys: ObjectKeys,
    view: PartitionView,
    archived_deletes: ArchivedDeletes,
    *,
    uploads: bool = False,
) -> dict[str, _Verdict]:
    """Return the verdict on each object or unfinished upload that neither the facts nor a running attempt needs."""
    verdicts: dict[str, _Verdict] = {}
    unknown: dict[str, ParsedObjectKey] = {}
    for key in names:
        parsed = keys.parse(key)
        if parsed is None or parsed.partition != view.partition:
            verdicts[key] = None, False, "no name of an object of this partition"
            continue
        segment_id = parsed.segment_id
        segment = view.segments.get(segment_id)
        if segment_id in view.kept:
            continue
        if segment is None or segment.subject is None:
            unknown[key] = parsed
        elif segment.subject.object_key != parsed.base_key:
            verdicts[key] = segment_id, False, "its segment id belongs to another object"
        elif segment.state is not SegmentState.DELETE_SEGMENT_FINISHED:
            if uploads and segment.state is not SegmentState.COPY_SEGMENT_STARTED:
                verdicts[key] = segment_id, True, "its attempt has ended"
        elif is_deleted(segment):
            verdicts[key] = segment_id, True, "its segment was deleted"
        else:
            unknown[key] = parsed
    ids = {parsed.segment_id for parsed in unknown.values()}
    deleted = set(archived_deletes(view.partition, ids).values()) if ids else set()
    for key, parsed in unknown.items():
        condemned = parsed.base_key in deleted
        why = "its segment was deleted, says the archive" if condemned else "no fact names its segment"
        verdicts[key] = parsed.segment_id, condemned, why
    return verdicts


def is_deleted(segment: SegmentMeaning) -> bool:
    """Return whether an accepted delete-finished exists. Objects that still exist were then written later."""
    finished = (live for live in segment.facts if isinstance(live.fact, SegmentDeleteFinished))
    return any(live.key not in segment.fenced for live in finished)


def next_orphans(view: PartitionView, ripe: Collection[str]) -> SweepOrphans | None:
    """Return a sweep of ``ripe``: keys that stayed condemned for a grace. None if there are none, or a doubt."""
    return SweepOrphans(tuple(ripe)) if ripe and doubt_of(view) is None else None
