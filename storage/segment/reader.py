"""Reads a segment that tierstate or Aiven's plugin wrote: plain bytes by range, indexes by kind. Verifies checksums.

Lengths are always checked. If an object is shorter than its manifest states, reads raise CorruptData.
A missing object raises ObjectNotFound. The caller decides what that means, because the segment may have expired.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial

import google_crc32c

from ...state.errors import CorruptData, InvalidRequest
from ...state.object_keys import ObjectKind, base_of, object_key
from ...state.offsets import ByteRange
from ...state.segment import RemoteSegment
from ..object_store import ObjectReads
from .buffers import Buffers, Bytes, Window
from .cache import ChunkCache
from .chunks import Chunk, chunk_of_offset
from .encryption import KeyUnwrapper, SegmentCipher
from .in_order import in_order
from .log_chunks import LogChunks, exact_range, windows
from .manifest import IndexKind, SegmentManifest
from .manifest_json import MAX_MANIFEST_BYTES, parse_manifest

PARALLEL = 4
"""Most requests in flight for one range."""
DESCRIBED = tuple(each.name for each in fields(RemoteSegment))
IDENTITY = ("partition", "segment_id", "object_key", "offsets", "leader_epochs", "aborted", "log_bytes", "log_sha256")
"""Fields that identify a segment or decide which records are shown. Reads compare these, `verify` all fields."""


def read_manifest(store: ObjectReads, base_or_manifest_key: str) -> SegmentManifest:
    """Read a segment's manifest. Raises ObjectNotFound, CorruptData, InvalidRequest (an unsupported version)."""
    key = object_key(base_of(base_or_manifest_key), ObjectKind.MANIFEST)
    return parse_manifest(store.get(key, MAX_MANIFEST_BYTES), source=key)


def described_otherwise(manifest: SegmentManifest, fact: RemoteSegment) -> Iterator[tuple[str, object, object]]:
    """Yield (field, manifest's value, fact's value) for each difference. Aiven's manifests have only Kafka's fields.

    Terms are not compared, because a recovery gives facts new terms.
    """
    if manifest.tierstate is not None:
        for name in DESCRIBED:
            own, expected = getattr(manifest.tierstate.segment, name), getattr(fact, name)
            if own != expected and name != "term":
                yield name, own, expected
    elif manifest.metadata is not None:
        kafkas, offsets = manifest.metadata, f"{manifest.metadata.start_offset}..{manifest.metadata.end_offset}"
        described = {"partition": kafkas.partition, "segment_id": kafkas.segment_id, "offsets": offsets}
        for name, own in described.items():
            if str(own) != str(getattr(fact, name)):
                yield name, own, getattr(fact, name)


def require_described(manifest: SegmentManifest, fact: RemoteSegment, by: Collection[str] = IDENTITY) -> None:
    """Raise CorruptData with both values if the manifest and the fact differ in a field of ``by``."""
    for name, own, expected in described_otherwise(manifest, fact):
        if name in by:
            key = object_key(fact.object_key, ObjectKind.MANIFEST)
            raise CorruptData(f"the manifest describes another segment: {name}", file=key, manifest=own, fact=expected)


class SegmentReader:
    """Reads one segment. Thread-safe. ``unproven``: chunks are not compared with the checksums in the manifest.

    A range is read in windows of adjacent chunks (`log_chunks.WINDOW_BYTES`, or one larger chunk). Each window is one
    request, and ``parallel`` requests run at a time. In memory are ``parallel`` windows, as stored and plain, and the
    window that the caller uses. If the caller closes the iterator early, no thread and no request remains.
    """

    def __init__(
        self,
        store: ObjectReads,
        base_key: str,
        manifest: SegmentManifest,
        *,
        keys: KeyUnwrapper | None = None,
        cache: ChunkCache | None = None,
        parallel: int = PARALLEL,
        unproven: bool = False,
    ) -> None:
        self.manifest = manifest
        self._store, self._base_key, self._keys = store, base_key, keys
        self._cache, self._parallel = cache, parallel
        self.first_batches: dict[int, int] = {}
        """Position in the plain log of a chunk's first batch, by chunk id. `fetch/locate.py` fills it."""
        self._log_key = object_key(base_key, ObjectKind.LOG)
        self._indexes_key = object_key(base_key, ObjectKind.INDEXES)
        self._cipher: SegmentCipher | None = None
        if manifest.encryption is not None:
            if keys is None:
                raise InvalidRequest(
                    "segment is encrypted and no key ring was given: set encryption.keyring",
                    key=base_key,
                    key_id=manifest.encryption.key_id,
                )
            manifest_key = object_key(base_key, ObjectKind.MANIFEST)
            self._cipher = SegmentCipher.open(manifest.encryption, keys, source=manifest_key)
        sent_checksums = None if manifest.tierstate is None else manifest.tierstate.sent
        self.log = LogChunks(
            store,
            self._log_key,
            compressed=manifest.compression,
            cipher=self._cipher,
            checksums=() if sent_checksums is None or unproven else sent_checksums.chunks,
        )
        self._as_it_is = not manifest.compression and manifest.encryption is None
        if min(manifest.chunks.stored_sizes) < 1 and manifest.chunks.file_bytes:
            raise CorruptData("the manifest says that a chunk is stored in no bytes", file=self._log_key)
        if self._as_it_is and not manifest.chunks.is_plain:
            raise CorruptData("a plain log's chunks are as long as they are stored", file=self._log_key)

    @classmethod
    def open(
        cls,
        store: ObjectReads,
        key: str,
        *,
        keys: KeyUnwrapper | None = None,
        cache: ChunkCache | None = None,
        parallel: int = PARALLEL,
    ) -> SegmentReader:
        """Read the manifest and return the reader. ``key`` is the base key or manifest key.

        Raises the errors of `read_manifest`. Raises InvalidRequest if the segment is encrypted and ``keys`` is None.
        """
        return cls(store, base_of(key), read_manifest(store, key), keys=keys, cache=cache, parallel=parallel)

    def unproven(self) -> SegmentReader:
        """Return a reader without cache that does not check chunks, to find out which batch is damaged."""
        return SegmentReader(self._store, self._base_key, self.manifest, keys=self._keys, unproven=True)

    @property
    def plain_bytes(self) -> int:
        return self.manifest.chunks.file_bytes

    def plain_range(self, start: int, stop: int, *, alone: bool = False) -> Generator[Bytes, None, None]:
        """Return an iterator over the bytes ``[start, stop)`` of the plain log. A stop past the log's end is clamped.

        ``alone``: no further read is expected, so cached chunks are unpacked only as far as this read needs.
        Raises InvalidRequest if ``start`` is at or past the end.
        """
        if not 0 <= start < self.plain_bytes:
            raise InvalidRequest("position past the end of the log", position=start, log_bytes=self.plain_bytes)
        stop = min(stop, self.plain_bytes)
        if stop <= start:
            return in_order((), self._parallel)
        return self._by_chunk(start, stop, self.chunks_of(start, stop), alone)

    def held(self, start: int, stop: int) -> list[Bytes] | None:
        """Return the pieces of `plain_range` if the cache has all of them in memory, else None. Never waits for a load.

        The pieces may be views. They keep whole chunks in memory beyond the cache's limit: do not keep them for long.
        """
        chunks = self.chunks_of(start, stop)
        pieces = None if self._cache is None else self._cache.held(self._log_key, [chunk.id for chunk in chunks])
        if pieces is None:
            return None
        return [_cut(data, chunk.plain_start, start, stop) for chunk, data in zip(chunks, pieces, strict=True)]

    def chunks_of(self, start: int, stop: int) -> list[Chunk]:
        """Return the chunks that contain the bytes ``[start, stop)`` of the plain log."""
        size = self.manifest.chunks.chunk_bytes
        return [*map(self.manifest.chunks.chunk, range(start // size, -(-min(stop, self.plain_bytes) // size)))]

    def ranges(self, start: int, stop: int, window_bytes: int) -> Iterator[ByteRange]:
        """Yield ranges of whole chunks, of about ``window_bytes`` and each for one request of `load`, that cover
        ``[start, stop)``: they may begin before ``start`` and end after ``stop``.
        """
        for chunks in windows(self.chunks_of(start, stop), window_bytes):
            yield ByteRange(chunks[0].plain_start, chunks[-1].plain_stop)

    def load(self, plain: ByteRange, buffers: Buffers, left: threading.Event) -> Window:
        """Read a range that `ranges` yielded, without the cache. Setting ``left`` stops the read.
        Memory: the window, and the stored bytes of a chunk. Raises ObjectNotFound, CorruptData, Unavailable, Stopped.
        """
        window = buffers.take(plain.start, len(plain))
        chunks = self.chunks_of(plain.start, plain.stop)
        if self._as_it_is:
            self.log.stored_into(window.data, plain, left, chunks)
            if self.log.checksums:
                for chunk in chunks:
                    self.log.require(chunk, window.data[chunk.plain_start - plain.start :][: chunk.plain_size])
            return window
        at = 0
        with closing(self.log.stored(chunks, left)) as stored:
            for chunk, data in zip(chunks, stored, strict=True):
                window.data[at : at + chunk.plain_size] = self.log.plain(chunk, data)
                at += chunk.plain_size
        return window

    def read_log(self) -> Generator[bytes, None, None]:
        """Yield the whole plain log in pieces. Pieces that are views are copied."""
        if self.plain_bytes:
            with closing(self.plain_range(0, self.plain_bytes)) as pieces:
                for piece in pieces:
                    yield bytes(piece)

    def chunk_for_offset(self, offset: int) -> int | None:
        """Return the id of the chunk where the batch with this offset begins. Aiven's manifests: None."""
        block = self.manifest.tierstate
        return None if block is None else chunk_of_offset(block.chunk_first_offsets, offset)

    def indexes(self, kind: IndexKind) -> bytes | None:
        """Return one of Kafka's index files. Returns None if the segment had no transaction index."""
        span = self.manifest.indexes[kind]
        if span is None or span.size == 0:
            return None if span is None else b""
        byte_range = ByteRange(span.position, span.position + span.size)
        stored = b"".join(exact_range(self._store, self._indexes_key, byte_range))
        if self._cipher is None:
            return stored
        return self._cipher.decrypt(stored, source=self._indexes_key, position=span.position)

    def verify(
        self, expected: RemoteSegment | None = None, watch: Callable[[bytes], object] = lambda piece: None
    ) -> int:
        """Read every byte and check all sizes. Compare checksums with ``expected`` or the manifest's descriptor, if
        there is one. Return the number of plain bytes.

        ``watch`` receives the pieces of the plain log in order, before the check has ended.
        Raises CorruptData that names the object, and ObjectNotFound.
        """
        block = self.manifest.tierstate
        if expected is not None:
            require_described(self.manifest, expected, DESCRIBED)
        expected = expected or (block.segment if block is not None else None)
        log_size = self._object_size(self._log_key, self.manifest.chunks.stored_bytes)
        ends = [span.position + span.size for span in self.manifest.indexes.values() if span is not None]
        indexes_size = self._object_size(self._indexes_key, max(ends))
        log_sha, crc, log_bytes = hashlib.sha256(), 0, 0
        for piece in self.read_log():
            log_sha.update(piece)
            crc = google_crc32c.extend(crc, piece)
            log_bytes += len(piece)
            watch(piece)
        indexes = b"".join(self.indexes(kind) or b"" for kind in IndexKind)
        if expected is not None:
            manifest_key = object_key(self._base_key, ObjectKind.MANIFEST)
            _same(self._log_key, "bytes", log_bytes, expected.log_bytes)
            _same(self._log_key, "object bytes", log_size, expected.log_object_bytes)
            _same(self._log_key, "SHA-256", log_sha.hexdigest(), expected.log_sha256.hex())
            _same(self._log_key, "CRC-32C", crc, expected.log_crc32c)
            _same(self._indexes_key, "object bytes", indexes_size, expected.indexes_object_bytes)
            indexes_sha = hashlib.sha256(indexes).hexdigest()
            _same(self._indexes_key, "SHA-256", indexes_sha, expected.indexes_sha256.hex())
            _same(manifest_key, "object bytes", self._store.head(manifest_key).size, expected.manifest_bytes)
        return log_bytes + len(indexes)

    def _by_chunk(self, start: int, stop: int, chunks: Sequence[Chunk], alone: bool) -> Generator[Bytes, None, None]:
        at = 0
        cached = self._cache is not None and all(self._cache.knows(self._log_key, each.id) for each in chunks)
        parallel = 1 if cached else self._parallel  # threads help only when chunks come from the store
        upto = stop - chunks[-1].plain_start if alone else None
        work = (partial(self._window, each, upto if each[-1] is chunks[-1] else None) for each in windows(chunks))
        with closing(in_order(work, parallel)) as loaded:
            for window in loaded:
                for data in window:
                    yield _cut(data, chunks[at].plain_start, start, stop)
                    at += 1

    def _window(self, chunks: Sequence[Chunk], upto: int | None, left: threading.Event) -> Iterable[Bytes]:
        if self._cache is not None:
            return self._cache.window(self.log, chunks, left, upto)
        with closing(self.log.stored(chunks, left)) as stored:
            return [self.log.plain(chunk, each) for chunk, each in zip(chunks, stored, strict=True)]

    def _object_size(self, key: str, expected: int) -> int:
        if expected == 0 and key == self._indexes_key:
            return 0  # Aiven's plugin creates no empty object on S3
        _same(key, "object bytes", self._store.head(key).size, expected)
        return expected


def _cut(data: Bytes, at: int, start: int, stop: int) -> Bytes:
    """Return the part of a chunk in ``[start, stop)`` of the plain log. ``at`` is the chunk's position in that log."""
    if at >= start and at + len(data) <= stop:
        return data
    return memoryview(data)[max(0, start - at) : stop - at]


def _same(key: str, what: str, value: object, expected: object) -> None:
    if value != expected:
        raise CorruptData(f"{what} are not as described", file=key, expected=expected, found=value)
