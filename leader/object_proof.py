"""The proof that the objects of a segment hold what was copied. It is required before the broker's copy is trimmed.

The manifest has the CRC-32C of the log object and of the indexes object as they were sent, and of itself. The store's
CRC-32C of a whole object (S3, Google) is compared with the one that was sent. If the store has none, or another value,
the object is read back. If a release wrote no such checksum, the segment is read, decoded and compared with its fact.
Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import google_crc32c

from ..rules.missing import objects_of
from ..rules.recovery import FoundSegment
from ..state.errors import (
    UNNAMED_STORE,
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    StorageUnavailable,
    Undecodable,
)
from ..state.object_keys import ObjectKind, object_key
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange
from ..state.segment import RemoteSegment
from ..storage.object_store import ObjectReader
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.manifest import SegmentManifest
from ..storage.segment.reader import SegmentReader, read_manifest
from .recover_scan import DamagedManifest, found_by


@dataclass(frozen=True, slots=True)
class ObjectProof:
    """``read_back``: objects are read even if the store has a checksum (``trim.proof = "read"``).

    ``keys``: decrypt segments of releases that wrote no checksum of the objects.
    """

    store: ObjectReader
    read_back: bool = False
    keys: KeyUnwrapper | None = None

    def require(self, segment: RemoteSegment) -> None:
        """Check that all objects hold what was copied. Memory: one piece, or that of `SegmentReader.verify`.

        Raises CorruptData naming the object that is missing or different. Also raises Undecodable and store errors.
        """
        objects = {key: self._head(key, size) for key, size in objects_of(segment).items()}
        manifest = self._manifest(segment, objects)
        require_decodable(segment, manifest)
        self._require_contents(segment, manifest, objects)

    def _require_contents(
        self, segment: RemoteSegment, manifest: SegmentManifest, objects: Mapping[str, ObjectInfo]
    ) -> None:
        """Check that the log object and the indexes object hold what was sent*. Raises CorruptData."""
        sent = manifest.tierstate.sent if manifest.tierstate else None
        contents = [object_key(segment.object_key, kind) for kind in (ObjectKind.LOG, ObjectKind.INDEXES)]
        if sent is None:
            for key in contents:
                self.store.drop_cached(key)
            SegmentReader(self.store, segment.object_key, manifest, keys=self.keys).verify(segment)
            return
        for key, expected in zip(contents, (sent.log, sent.indexes), strict=True):
            if not self.read_back and objects[key].crc32c == expected:
                continue
            crc32c = self._read(key, objects[key].size)
            if crc32c != expected:
                what = "object of a live segment has other bytes than were sent"
                raise CorruptData(what, object_key=key, expected=f"{expected:08x}", found=f"{crc32c:08x}")

    def _head(self, key: str, size: int) -> ObjectInfo:
        try:
            info = self.store.head(key)
        except ObjectNotFound as error:
            raise _missing(error, key) from error
        if info.size != size:
            raise CorruptData(
                "object of a live segment has another size", object_key=key, expected=size, found=info.size
            )
        return info

    def _manifest(self, segment: RemoteSegment, objects: Mapping[str, ObjectInfo]) -> SegmentManifest:
        """Return the manifest. Raises CorruptData unless a recovery from it alone would restore exactly this segment*:
        the end of the tier-state topic may be lost before it is archived.
        """
        key = object_key(segment.object_key, ObjectKind.MANIFEST)
        self.store.drop_cached(key)
        try:
            manifest = read_manifest(self.store, key)
        except ObjectNotFound as error:
            raise _missing(error, key) from error
        except (CorruptData, InvalidRequest) as error:
            raise _not_restored(str(error), key) from error
        finding = found_by(manifest, segment.object_key, objects)
        if not isinstance(finding, FoundSegment) or replace(finding.segment, term=segment.term) != segment:
            problem = finding.problem if isinstance(finding, DamagedManifest) else "it describes another segment"
            raise _not_restored(problem, key)
        return manifest

    def _read(self, key: str, size: int) -> int:
        """Read the object from the store and return its CRC-32C."""
        self.store.drop_cached(key)
        crc32c = 0
        if size:
            for piece in self.store.stream_range(key, ByteRange(0, size)):
                crc32c = google_crc32c.extend(crc32c, piece)
        return crc32c


def require_decodable(segment: RemoteSegment, manifest: SegmentManifest) -> None:
    """Raise Undecodable if the segment has a batch that Kafka serves but readers of the remote tier refuse."""
    if manifest.tierstate is not None and manifest.tierstate.undecodable is not None:
        place = f"{segment.topic}:{segment.partition.partition}"
        raise Undecodable(
            "readers of the remote tier refuse a batch that Kafka serves, so the broker keeps its segment: write its "
            f"records again, then tierstate delete-records {place} --before {segment.offsets.end + 1}",
            batch=manifest.tierstate.undecodable,
            object_key=segment.object_key,
        )


def _missing(error: ObjectNotFound, key: str) -> CorruptData | StorageUnavailable:
    if (store := error.facts.get(UNNAMED_STORE)) is not None:
        return StorageUnavailable("the object may be in another store", object_key=key, store=store)
    return CorruptData("object of a live segment is missing", object_key=key)


def _not_restored(problem: str, key: str) -> CorruptData:
    return CorruptData(f"no recovery would restore a live segment from its manifest: {problem}", object_key=key)
