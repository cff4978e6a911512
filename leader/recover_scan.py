"""The sources of a recovery: the segments in a bucket, and the complete history of each partition in the archive.

The bucket is scanned by a single LIST, in which the three objects of a segment are adjacent. Each manifest is checked
against the listing. It is damaged if the segment's log or indexes are missing or have another size. It is also damaged
if it describes objects under another key than its own (a copied folder).

A tombstone means that the live set no longer needs a fact, but a recovery may need it. For example, a segment whose
facts were all erased must not become readable again because its manifest still exists. So tombstones erase only facts
without a term here: orders, leases, holds, and decisions by people. All other facts of the history count. A copy fact
is erased only after its segment is deleted. So its tombstone alone shows the deletion, even if the delete fact is not
in the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

from ..rules.lost_facts import is_unfinished
from ..rules.recovery import ArchivedPartition, FoundSegment, Standing
from ..rules.sweep import is_deleted
from ..schemas.codec import decode_fact
from ..state.apply import PartitionState
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ..state.facts import LeaderElected, LiveFact, LocalTrimIntended, SegmentDeleteStarted, UnknownFact
from ..state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ..state.keys import SAID_BY_PEOPLE, KeyKind, ParsedKey, parse_key
from ..state.meaning import in_words
from ..state.object_keys import ObjectKind, base_of, not_own, object_key
from ..state.objects import ObjectInfo
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..state.segment import SegmentState
from ..state.view import Entry
from ..storage.object_store import ObjectReader
from ..storage.segment.manifest import SegmentManifest, TierstateBlock, metadata_of
from ..storage.segment.reader import read_manifest

AT_ONCE = 16
WINDOW = 256


@dataclass(frozen=True, slots=True)
class DamagedManifest:
    """A manifest that cannot be trusted, and why."""

    key: str
    problem: str


@dataclass(frozen=True, slots=True)
class ForeignManifest:
    """The manifest of another writer, cluster or tier-state topic. ``partition``: the named partition, if any."""

    key: str
    why: str
    partition: TopicIdPartition | None = None


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Objects of a segment without a manifest: its copy or its delete has not ended."""

    base_key: str
    bytes: int


Found = FoundSegment | DamagedManifest | ForeignManifest | Uncommitted
Judge = Callable[[SegmentManifest, str, Mapping[str, ObjectInfo]], Found]
"""Returns the finding for a manifest, the segment's base key, and its listed objects by key."""


def scan_bucket(
    store: ObjectReader,
    prefix: str = "",
    selector: Callable[[str], bool] = lambda base: True,
    judge: Judge | None = None,
) -> Iterator[Found]:
    """Yield a finding for each segment that has objects below ``prefix``. Raises Unavailable kinds, AccessDenied.

    ``selector`` selects segments by base key. ``judge``: makes a finding of a manifest; None: `found_by`.
    Memory: `WINDOW` manifests, of which `AT_ONCE` are read at a time.
    """
    look = partial(look_at, store, judge=judge or found_by)
    named = (info for info in store.list(prefix) if base_of(info.key) != info.key)
    segments = (
        (base, {info.key: info for info in objects})
        for base, objects in groupby(named, key=lambda info: base_of(info.key))
        if selector(base)
    )
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="recover") as pool:
        while window := list(islice(segments, WINDOW)):
            yield from pool.map(lambda each: look(*each), window)


def look_at(store: ObjectReader, base: str, objects: Mapping[str, ObjectInfo], *, judge: Judge) -> Found:
    """Read the manifest and return what ``judge`` makes of it. ``objects``: the listed objects by key."""
    key = object_key(base, ObjectKind.MANIFEST)
    if key not in objects:
        return Uncommitted(base, sum(info.size for info in objects.values()))
    try:
        return judge(read_manifest(store, key), base, objects)
    except ObjectNotFound:
        return Uncommitted(base, sum(info.size for info in objects.values()))
    except (CorruptData, InvalidRequest) as error:
        return DamagedManifest(key, str(error))


def found_by(
    manifest: SegmentManifest, base: str, objects: Mapping[str, ObjectInfo]
) -> FoundSegment | ForeignManifest | DamagedManifest:
    """Return how a recovery treats a segment with this manifest. ``objects``: as for `look_at`."""
    key = object_key(base, ObjectKind.MANIFEST)
    block = manifest.tierstate
    if block is None:
        where = manifest.metadata.partition if manifest.metadata else None
        return ForeignManifest(key, "written by another program: it has no tierstate block", where)
    problem = _problem(base, manifest, block, objects)
    if problem is not None or manifest.metadata is None:
        return DamagedManifest(key, problem or "it has no segment metadata")
    return FoundSegment(
        segment=block.segment,
        started_at=manifest.metadata.event_timestamp,
        log_start=block.log_start_offset,
        cluster_id=block.cluster_id,
        tier_state_topic_id=block.tier_state_topic_id,
    )


def _problem(
    base: str, manifest: SegmentManifest, block: TierstateBlock, objects: Mapping[str, ObjectInfo]
) -> str | None:
    segment = block.segment
    if segment.object_key != base:
        return f"it describes another object, {segment.object_key}"
    foreign = not_own(segment)
    if foreign is not None:
        return f"it describes another segment, {segment.segment_id} of {segment.partition}: {foreign}"
    if manifest.metadata is None or manifest.metadata != metadata_of(segment, manifest.metadata.event_timestamp):
        return "its descriptor and its segment metadata contradict each other"
    sizes = {
        ObjectKind.LOG: segment.log_object_bytes,
        ObjectKind.INDEXES: segment.indexes_object_bytes,
        ObjectKind.MANIFEST: segment.manifest_bytes,
    }
    for kind, size in sizes.items():
        info = objects.get(object_key(base, kind))
        if info is None and size:
            return f"its {kind} object is missing"
        if info is not None and info.size != size:
            return f"its {kind} object has {info.size} bytes, not {size}"
    return None


@dataclass(frozen=True, slots=True)
class Bucket:
    """The findings in a bucket, by kind. ``ours``: the segments that a recovery may restore."""

    ours: tuple[FoundSegment, ...]
    foreign: tuple[ForeignManifest, ...]
    damaged: tuple[DamagedManifest, ...]
    uncommitted: tuple[Uncommitted, ...]


def _copied_at(finding: FoundSegment) -> TimestampMs:
    return finding.segment.copied_at


def sort_out(findings: Iterable[Found], cluster_id: str, topic_ids: Iterable[TopicId] = ()) -> Bucket:
    """Sort findings. ``topic_ids``: the tier-state topics to restore from; if empty, the only one in the bucket.

    Raises InvalidRequest naming the topics if there are several in the bucket and ``topic_ids`` is empty.
    """
    findings = list(findings)
    ours = [each for each in findings if isinstance(each, FoundSegment)]
    foreign = [each for each in findings if isinstance(each, ForeignManifest)]
    damaged = [each for each in findings if isinstance(each, DamagedManifest)]
    uncommitted = [each for each in findings if isinstance(each, Uncommitted)]
    mine = [each for each in ours if each.cluster_id == cluster_id]
    chosen = frozenset(topic_ids) or frozenset(each.tier_state_topic_id for each in mine)
    if len(chosen) > 1 and not topic_ids:
        last = {each.tier_state_topic_id: each for each in sorted(mine, key=_copied_at)}
        raise InvalidRequest(
            "segments of several tier-state topics are in the bucket: name those that are lost by --topic-id, oldest "
            "first, as they stand here",
            ids=", ".join(each.tier_state_topic_id for each in sorted(last.values(), key=_copied_at)),
        )
    for finding in ours:
        why = None
        if finding.cluster_id != cluster_id:
            why = f"of another cluster, {finding.cluster_id}"
        elif finding.tier_state_topic_id not in chosen:
            why = f"of another tier-state topic, {finding.tier_state_topic_id}"
        if why is not None:
            key = object_key(finding.segment.object_key, ObjectKind.MANIFEST)
            foreign.append(ForeignManifest(key, why, finding.segment.partition))
    restorable = tuple(each for each in mine if each.tier_state_topic_id in chosen)
    return Bucket(restorable, tuple(foreign), tuple(damaged), tuple(uncommitted))


BY_NO_TERM = SAID_BY_PEOPLE | {KeyKind.LEASE, KeyKind.LATER}


def about_partitions(entries: Iterable[Entry]) -> Iterator[tuple[ParsedKey, Entry]]:
    """Yield the entries that name a partition, with their keys.

    Raises CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    for entry in entries:
        try:
            key = parse_key(entry.key)
        except InvalidRequest as error:
            raise CorruptData(
                "the archive holds a key of unknown form", key=repr(entry.key), position=entry.position
            ) from error
        if key is not None:
            yield key, entry


def read_history(entries: Iterable[Entry]) -> dict[TopicIdPartition, ArchivedPartition]:
    """Return every partition that the entries name. Entries of a tier-state partition must be in order of position.

    Raises CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    states: dict[TopicIdPartition, PartitionState] = {}
    erased: set[RemoteSegmentId] = set()
    for key, entry in about_partitions(entries):
        if entry.value is None and key.kind in BY_NO_TERM:  # the partition may have no facts: clocks, signatures
            if key.partition in states:
                states[key.partition].erase(entry.key)
            continue
        state = states.setdefault(key.partition, PartitionState(key.partition))
        if entry.value is not None:
            fact = decode_fact(entry.key, entry.value)
            if not isinstance(fact, LocalTrimIntended):  # there are many, and a recovery does not need them
                state.insert(LiveFact(entry.key, entry.position, fact))
        elif key.kind in (KeyKind.COPY_STARTED, KeyKind.COPY_FINISHED) and key.segment_id is not None:
            erased.add(key.segment_id)
    return {partition: said_by(state.view(), erased) for partition, state in states.items()}


def said_by(view: PartitionView, erased: Set[RemoteSegmentId] = frozenset()) -> ArchivedPartition:
    """Return a partition's facts as a recovery needs them. ``erased``: the segments whose copy facts were erased."""
    # If the oldest part of the archive was dropped, a copy-finished may lack its copy-started: the state is unknown.
    states = {
        sid: each.state
        for sid, each in view.segments.items()
        if each.contradiction is None or each.state is not SegmentState.ABANDONED
    }
    states.update({sid: SegmentState.DELETE_SEGMENT_FINISHED for sid in view.segments if sid in erased})
    deletes = {sid: each.deleting.fact for sid, each in view.segments.items() if each.deleting is not None}
    return ArchivedPartition(
        partition=view.partition,
        leader=view.leader,
        log_starts=view.log_starts,
        states=states,
        reasons={sid: fact.reason for sid, fact in deletes.items() if isinstance(fact, SegmentDeleteStarted)},
        finished={segment.segment_id: segment for segment in view.readable if segment.segment_id not in erased},
        standing=tuple(live.fact for live in view.others if isinstance(live.fact, Standing)),
        deleted=view.deleted is not None,
        unreadable=view.degraded,
        ignorable=tuple(
            in_words(live, live.fact)
            for live in view.others
            if isinstance(live.fact, UnknownFact) and live.fact.ignorable
        ),
        addresses=frozenset(
            live.fact.management_address
            for live in view.others
            if isinstance(live.fact, LeaderElected) and live.fact.management_address
        ),
        unfinished=frozenset(sid for sid, each in view.segments.items() if is_unfinished(each)),
    )


def continued(
    older: Mapping[TopicIdPartition, ArchivedPartition], newer: Mapping[TopicIdPartition, ArchivedPartition]
) -> dict[TopicIdPartition, ArchivedPartition]:
    """Merge the archives of two tier-state topics of one cluster, the newer one recovered from the older one.

    The newer archive takes precedence. The older one adds what the newer one lacks. Deleted segments stay deleted.
    """
    both = dict(older)
    for partition, now in newer.items():
        before = older.get(partition)
        both[partition] = now if before is None else _continued(before, now)
    return both


def _continued(before: ArchivedPartition, now: ArchivedPartition) -> ArchivedPartition:
    deletes = {
        sid: state
        for sid, state in before.states.items()
        if state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    }
    finished = {**before.finished, **now.finished}
    states = {**before.states, **now.states, **deletes}
    return replace(
        now,
        leader=now.leader or before.leader,
        log_starts=before.log_starts + now.log_starts,
        states=states,
        reasons={**before.reasons, **now.reasons},
        finished={sid: s for sid, s in finished.items() if states[sid] is SegmentState.COPY_SEGMENT_FINISHED},
        deleted=before.deleted or now.deleted,
        unreadable=(*before.unreadable, *now.unreadable),
        ignorable=(*before.ignorable, *now.ignorable),
        addresses=before.addresses | now.addresses,
        unfinished=now.unfinished | {sid for sid in before.unfinished if sid not in now.states},
    )


def deleted_in(
    entries: Iterable[Entry], targets: Collection[tuple[TopicIdPartition, RemoteSegmentId]]
) -> dict[tuple[TopicIdPartition, RemoteSegmentId], str]:
    """Return the segments of ``targets`` that are deleted, with the base key of their own objects.

    ``entries``: the whole history of a tier-state partition, tombstones included, as it was archived. Facts count even
    if a tombstone erased them: otherwise nothing would be left to find. Terms are read too: they show which deletes
    were accepted. Memory: the terms of the partitions in ``targets``, and the facts of its segments. Raises
    CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    states = {partition: PartitionState(partition) for partition, _ in targets}
    segments = frozenset(targets)
    for key, entry in about_partitions(entries):
        if entry.value is None or key.partition not in states:
            continue
        of_segment = key.segment_id is not None and (key.partition, key.segment_id) in segments
        if of_segment or key.kind is KeyKind.LEADER:
            fact = decode_fact(entry.key, entry.value)
            states[key.partition].insert(LiveFact(entry.key, entry.position, fact))
    base_keys = {}
    for partition, state in states.items():
        for segment_id, segment in state.view().segments.items():
            subject = segment.subject
            if subject is not None and is_deleted(segment) and not_own(subject) is None:
                base_keys[partition, segment_id] = subject.object_key
    return base_keys
