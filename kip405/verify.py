"""Verifies what Kafka tiered: its metadata, the objects behind it, and every byte of them. Nothing is ever changed.

Level 0: no offset is missing, and no copy or deletion stands still. 1: the objects of every segment exist, and the
metadata names every object. 2: manifests and sizes are as recorded. 3: the CRC, the order and the leader epoch of each
batch, and the markers of transactions against the ranges that readers hide. Kafka records no checksum of a copy, so no
level can prove that a correct log is the one that was copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..fetch.batch_order import BatchOrder
from ..fetch.copied_segment import whole_batches
from ..fetch.verify import Finding, Severity, out_of_lineage
from ..fetch.verify_batches import CopiedMarkers
from ..fetch.verify_objects import Checked, Verifier, corrupted
from ..log.batch import CONTROL, TRANSACTIONAL, iter_batches
from ..runtime.units import counted
from ..state.errors import CorruptData, ObjectNotFound
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Offset, OffsetRange, TimestampMs, moment
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.routing import LocalBounds, log_start
from ..state.segment import RemoteSegment, SegmentState
from ..storage.segment.manifest import SegmentManifest
from ..storage.segment.reader import SegmentReader, described_otherwise
from .tiers import KafkasRemoteTier

STANDS_MS = 3_600_000
"""After this time without an end, a copy or a deletion is a finding. Kafka copies a segment in seconds to minutes."""


def check_kafkas_view(view: PartitionView, bounds: LocalBounds, now: TimestampMs) -> Iterator[Finding]:
    """Yield the findings of level 0. ``bounds`` are older than ``view``."""

    def found(severity: Severity, what: str, segment: SegmentMeaning | RemoteSegment | None = None) -> Finding:
        return Finding(0, severity, view.partition, what, None if segment is None else segment.segment_id)

    for what in view.degraded:
        yield found(Severity.CORRUPT, what)
    start = log_start(view, bounds)
    if start < bounds.local_start:
        for gap in view.gaps(OffsetRange(start, Offset(bounds.local_start - 1))):
            yield found(Severity.GAP, f"offsets {gap} belong to no tier")
    begun = [each for each in view.unsettled if each.state is SegmentState.COPY_SEGMENT_STARTED]
    for each in view.unsettled:
        since = each.attempt.started_at if each.attempt else now
        if each.state is SegmentState.DELETE_SEGMENT_STARTED:
            yield found(Severity.WAITING, "a deletion has begun and not ended", each)
        elif now - since > STANDS_MS:
            what = f"a copy began {moment(since)} and never ended: Kafka has left it, and its objects may be left, too"
            yield found(Severity.FINDING, what, each)
    if len(begun) > 1 and not view.readable:
        what = f"{counted(len(begun), 'copy', 'copies')} began and none ended: the plugin's copies fail on the broker"
        yield found(Severity.FINDING, what)
    for remote in view.readable:
        for cause, lost in out_of_lineage(view, remote).items():
            yield found(Severity.WAITING, f"{counted(lost, 'offset')} {cause}", remote)


@dataclass(frozen=True, slots=True)
class KafkasVerifier(Verifier):
    """Levels 1 to 3. ``remote`` reads the aborted ranges that readers hide."""

    remote: KafkasRemoteTier | None = None

    def _recorded_sizes(self, segment: RemoteSegment) -> Mapping[ObjectKind, int | None]:
        return dict.fromkeys(ObjectKind)

    def _differences(self, segment: RemoteSegment, manifest: SegmentManifest) -> Iterator[str]:
        for name, stated, recorded in described_otherwise(manifest, segment):
            yield f"the manifest says {name} {stated}, Kafka's metadata {recorded}"
        plain = SegmentReader(self.store, segment.object_key, manifest, keys=self.keys).plain_bytes
        if plain != segment.log_bytes:
            yield f"the manifest's log has {plain} bytes, Kafka's metadata says {segment.log_bytes}"
        ends = [span.position + span.size for span in manifest.indexes.values() if span is not None]
        for kind, stated in ((ObjectKind.LOG, manifest.chunks.stored_bytes), (ObjectKind.INDEXES, max(ends))):
            size = self.store.head(object_key(segment.object_key, kind)).size
            if size != stated:
                yield f"the {kind} object has {size} bytes, the manifest says {stated}"

    def _bytes(self, segment: RemoteSegment, manifest: SegmentManifest, checked: Checked) -> Iterator[Finding]:
        assert self.remote is not None
        log = object_key(segment.object_key, ObjectKind.LOG)
        try:
            reader = SegmentReader(self.store, segment.object_key, manifest, keys=self.keys)
            aborted = self.remote.with_aborted(segment).aborted.entries
            markers, order = CopiedMarkers(segment, reader, aborted), BatchOrder(reader, segment)
            for position, data in whole_batches(reader):
                for batch in iter_batches(data, source=log, position=position):
                    order.check(batch)
                    if batch.attributes & (TRANSACTIONAL | CONTROL):
                        markers.add(batch, data, position)
                checked.bytes_read += len(data)
            markers.check()
        except (ObjectNotFound, CorruptData) as error:
            yield corrupted(3, segment, str(error.facts.get("file") or error.facts.get("key")), str(error))
            return
        checked.markers = markers.manifest
