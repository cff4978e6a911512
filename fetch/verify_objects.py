"""Levels 1 to 3 of `verify`: the objects behind a view.

Level 1: the three objects of every readable segment exist, and facts name every existing object. Level 2: sizes are as
described, and each manifest has the description of its fact, field by field. Level 3: every byte is checked by
checksum. The manifest's chunk table and aborted ranges and the transaction index are compared with the real batches.
Records that readers refuse although Kafka serves them are found.

A partition changes while it is verified: a finding counts only if a view taken afterwards confirms it.
Memory: the findings, and the memory that `AT_ONCE` segments need at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from itertools import islice

from ..log.isolation import MarkerCheck
from ..runtime.units import counted
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectKind, base_of, folder_of, not_own, object_key
from ..state.objects import ObjectInfo
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment, SegmentState
from ..storage.object_store import ObjectReader
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.manifest import SegmentManifest, metadata_of
from ..storage.segment.reader import SegmentReader, described_otherwise, read_manifest
from .piece import no_rule
from .verify import Finding, Severity
from .verify_batches import AcrossSegments, ChunkTable, CopiedMarkers

AT_ONCE = 8
WINDOW = 128


@dataclass(slots=True)
class Checked:
    """Counts of checked objects. ``object_bytes``: the size of all existing objects; ``bytes_read``: bytes of level 3.

    ``markers``: the markers of one segment that was completely read, without errors.
    """

    segments: int = 0
    objects: int = 0
    object_bytes: int = 0
    bytes_read: int = 0
    orphan_objects: int = 0
    orphan_bytes: int = 0
    markers: MarkerCheck | None = None

    def counts(self) -> dict[str, int]:
        """Return the counts by the names that are shown to people."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "markers"}


@dataclass(frozen=True, slots=True)
class Verifier:
    """``look`` returns a current view of a partition. ``advance`` is called with the number of finished segments."""

    store: ObjectReader
    level: int
    look: Callable[[TopicIdPartition], PartitionView]
    keys: KeyUnwrapper | None = None
    names: ObjectKeys = field(default_factory=ObjectKeys)
    advance: Callable[[int], object] = lambda count: None
    checked: Checked = field(default_factory=Checked)

    def objects(self, view: PartitionView) -> Iterator[Finding]:
        """Yield the findings of one partition. Raises Unavailable kinds, AccessDenied, and InvalidSettings if an object
        may be in a store that no rule of ``store.topics`` names.
        """
        strays = list(self._strays(view))
        suspected = list(self._segments(view.readable))
        now = self.look(view.partition) if strays or suspected else view
        alive = {segment.segment_id for segment in now.readable}
        yield from (finding for finding in suspected if finding.segment_id in alive)
        named = {each.subject.object_key: each for each in now.segments.values() if each.subject}
        for stray in strays:
            segment = named.get(base_of(stray.key))
            if segment is None:
                self.checked.orphan_objects += 1
                self.checked.orphan_bytes += stray.size
                what = f"orphan: no fact names it ({counted(stray.size, 'byte')})"
                yield Finding(1, Severity.FINDING, view.partition, what, object=stray.key)
            elif segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
                what = "its delete is finished, but the object is there"
                yield Finding(1, Severity.FINDING, view.partition, what, segment.segment_id, stray.key)

    def _strays(self, view: PartitionView) -> Iterator[ObjectInfo]:
        """Yield objects below the partition's prefixes that ``view`` does not name as living. A later view may."""
        if view.topic is None:
            return
        gone = SegmentState.DELETE_SEGMENT_FINISHED
        living = {each.subject.object_key for each in view.segments.values() if each.subject and each.state is not gone}
        # the current prefix, and earlier ones that facts remember
        subjects = (each.subject for each in view.segments.values() if each.subject)
        prefixes = {folder_of(each.object_key) for each in subjects if not_own(each) is None}
        prefixes.add(self.names.partition_prefix(view.topic, view.partition.topic_id, view.partition.partition))
        for prefix in sorted(prefixes):
            for stored in self.store.list(prefix):
                if base_of(stored.key) not in living:
                    yield stored

    def _segments(self, segments: Iterable[RemoteSegment]) -> Iterator[Finding]:
        waiting, across = iter(segments), AcrossSegments()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="verify") as pool:
            while window := list(islice(waiting, WINDOW)):
                for segment, (findings, checked) in zip(window, pool.map(self._segment, window), strict=True):
                    self.checked.segments += 1
                    self.checked.objects += checked.objects
                    self.checked.object_bytes += checked.object_bytes
                    self.checked.bytes_read += checked.bytes_read
                    self.advance(1)
                    yield from findings
                    for wrong, what in across.push(segment, checked.markers):
                        yield corrupted(3, wrong, object_key(wrong.object_key, ObjectKind.MANIFEST), what)

    def _segment(self, segment: RemoteSegment) -> tuple[list[Finding], Checked]:
        """Check one segment in a thread of the pool. The caller adds up the counts."""
        checked = Checked()
        findings = list(self._sizes(segment, checked))
        if self.level >= 2 and not findings:
            findings += self._contents(segment, checked)
        return findings, checked

    def _recorded_sizes(self, segment: RemoteSegment) -> Mapping[ObjectKind, int | None]:
        """Return the size of each object; None: it is not recorded."""
        return {
            ObjectKind.LOG: segment.log_object_bytes,
            ObjectKind.INDEXES: segment.indexes_object_bytes,
            ObjectKind.MANIFEST: segment.manifest_bytes,
        }

    def _sizes(self, segment: RemoteSegment, checked: Checked) -> Iterator[Finding]:
        for kind, size in self._recorded_sizes(segment).items():
            key = object_key(segment.object_key, kind)
            try:
                stored_bytes = self.store.head(key).size
            except ObjectNotFound as error:
                if (unnamed := no_rule(error)) is not None:
                    raise unnamed from error
                yield corrupted(1, segment, key, "the object is missing")
                continue
            checked.objects += 1
            checked.object_bytes += stored_bytes
            if self.level >= 2 and size is not None and stored_bytes != size:
                yield corrupted(2, segment, key, f"the object has {stored_bytes} bytes, its fact says {size}")

    def _contents(self, segment: RemoteSegment, checked: Checked) -> Iterator[Finding]:
        key = object_key(segment.object_key, ObjectKind.MANIFEST)
        try:
            manifest = read_manifest(self.store, key)
            differences = list(self._differences(segment, manifest))
        except (ObjectNotFound, CorruptData, InvalidRequest) as error:
            yield corrupted(2, segment, key, str(error))
            return
        yield from (corrupted(2, segment, key, what) for what in differences)
        if self.level >= 3 and not differences:
            yield from self._bytes(segment, manifest, checked)

    def _bytes(self, segment: RemoteSegment, manifest: SegmentManifest, checked: Checked) -> Iterator[Finding]:
        if manifest.encryption is not None and self.keys is None:
            raise InvalidRequest(
                "level 3 needs the key ring of an encrypted segment: set encryption.keyring",
                key_id=manifest.encryption.key_id,
                object_key=segment.object_key,
            )
        try:
            reader = SegmentReader(self.store, segment.object_key, manifest, keys=self.keys)
            markers = CopiedMarkers(segment, reader)
            table = ChunkTable(segment.object_key, manifest, markers.add)
            plain_bytes = reader.verify(segment, table.take)
            table.check()
            markers.check()
        except (ObjectNotFound, CorruptData) as error:
            yield corrupted(3, segment, str(error.facts.get("file") or error.facts.get("key")), str(error))
            return
        if table.undecodable is not None:
            what = f"readers refuse the batch at offset {table.undecodable}, and Kafka serves it"
            log = object_key(segment.object_key, ObjectKind.LOG)
            yield Finding(3, Severity.FINDING, segment.partition, what, segment.segment_id, log)
        checked.bytes_read += plain_bytes
        checked.markers = markers.manifest

    def _differences(self, segment: RemoteSegment, manifest: SegmentManifest) -> Iterator[str]:
        block, metadata = manifest.tierstate, manifest.metadata
        if block is None or metadata is None:
            yield "the manifest is of another program"
            return
        for name, stated, fact in described_otherwise(manifest, segment):
            yield f"the manifest says {name} {_short(stated)}, its fact {_short(fact)}"
        if metadata != metadata_of(block.segment, metadata.event_timestamp):
            yield "the manifest's segment metadata contradicts its own descriptor"
        if (manifest.encryption is None) != (segment.encryption_key_id is None):  # its id changes when keys rotate
            yield f"the manifest is {'' if manifest.encryption else 'not '}encrypted, its fact says otherwise"
        stored = manifest.chunks.stored_bytes
        if stored != segment.log_object_bytes:
            yield f"the manifest's chunks have {stored} bytes, its fact says {segment.log_object_bytes}"


def corrupted(level: int, segment: RemoteSegment, key: str, what: str) -> Finding:
    return Finding(level, Severity.CORRUPT, segment.partition, what, segment.segment_id, key)


def _short(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
