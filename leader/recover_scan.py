"""Scan a bucket by a single LIST, in which the three objects of a segment are adjacent.

Each manifest is checked against the listing. It is damaged if the segment's log or indexes are missing or have another
size. It is also damaged if it describes objects under another key than its own (a copied folder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice

from ..rules.recovery import FoundSegment
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ..state.ids import TopicId, TopicIdPartition
from ..state.object_keys import ObjectKind, base_of, not_own, object_key
from ..state.objects import ObjectInfo
from ..state.offsets import TimestampMs
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


def everything(base: str) -> bool:
    """Select every segment: a filter for `scan_bucket`."""
    return True


def scan_bucket(store: ObjectReader, prefix: str = "", selector: Callable[[str], bool] = everything) -> Iterator[Found]:
    """Yield a finding for each segment that has objects below ``prefix``. Raises Unavailable kinds, AccessDenied.

    ``selector`` selects segments by base key. Memory: `WINDOW` manifests, of which `AT_ONCE` are read at a time.
    """
    named = (info for info in store.list(prefix) if base_of(info.key) != info.key)
    segments = (
        (base, {info.key: info for info in objects})
        for base, objects in groupby(named, key=lambda info: base_of(info.key))
        if selector(base)
    )
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="recover") as pool:
        while window := list(islice(segments, WINDOW)):
            yield from pool.map(lambda each: look_at(store, *each), window)


def look_at(store: ObjectReader, base: str, objects: Mapping[str, ObjectInfo]) -> Found:
    """Read the manifest and return how a recovery treats the segment. ``objects``: the listed objects by key."""
    key = object_key(base, ObjectKind.MANIFEST)
    if key not in objects:
        return Uncommitted(base, sum(info.size for info in objects.values()))
    try:
        return found_by(read_manifest(store, key), base, objects)
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
    ours: list[FoundSegment] = []
    foreign: list[ForeignManifest] = []
    damaged: list[DamagedManifest] = []
    uncommitted: list[Uncommitted] = []
    for finding in findings:
        match finding:
            case FoundSegment():
                ours.append(finding)
            case ForeignManifest():
                foreign.append(finding)
            case DamagedManifest():
                damaged.append(finding)
            case Uncommitted():
                uncommitted.append(finding)
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
