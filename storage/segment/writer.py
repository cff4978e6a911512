"""Writing a segment: log, then indexes, then the manifest, which commits it. Each step is a call of its own, so that an
act can name it before taking it; memory is one chunk beside what the store holds for an upload, however long the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import google_crc32c
import zstandard

from ...state.errors import CorruptData, InvalidRequest
from ...state.segment import Compression
from ..object_store import DEFAULT_PART_BYTES, Data, ObjectStore
from .chunks import MAX_CHUNK_BYTES, MAX_INT, ChunkIndex
from .keys import ObjectKind, object_key
from .manifest import IndexKind, IndexSpan, IndexSpans, SegmentManifest, format_manifest

DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
DEFAULT_LEVEL = 3
"""zstd's own default, and Aiven's."""


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """What is copied. ``log``: plain bytes in pieces of any size, ``log_bytes`` in all; the rest are Kafka's files.

    ``leader_epochs`` is the checkpoint's text; ``transaction_index`` is None when the segment has none.
    """

    log: Iterable[Data]
    log_bytes: int
    offset_index: bytes
    time_index: bytes
    producer_snapshot: bytes
    leader_epochs: bytes
    transaction_index: bytes | None


@dataclass(frozen=True, slots=True)
class LogObject:
    """A written log object. Checksums are of the plain log; `chunks` has its sizes, plain and stored."""

    chunks: ChunkIndex
    stored_bytes: int
    sha256: bytes
    crc32c: int


@dataclass(frozen=True, slots=True)
class IndexesObject:
    """A written indexes object; ``sha256`` of its plain bytes."""

    spans: IndexSpans
    stored_bytes: int
    sha256: bytes


def plan_compression(setting: str, first_batch_codec: int) -> Compression:
    """``auto``: zstd only over batches that are not compressed yet (zstd over zstd gains 0.8 %).

    ``first_batch_codec``: the codec bits of the first batch's attributes; 0 is none. Raises InvalidRequest.
    """
    match setting:
        case "auto":
            return Compression.ZSTD if first_batch_codec == 0 else Compression.NONE
        case "zstd" | "none":
            return Compression(setting)
        case _:
            raise InvalidRequest("compression is auto, zstd or none", compression=setting)


def put_log(
    store: ObjectStore,
    base_key: str,
    source: SegmentSource,
    compression: Compression,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    level: int = DEFAULT_LEVEL,
    part_bytes: int = DEFAULT_PART_BYTES,
    beyond_java: bool = False,
) -> LogObject:
    """Streams the log. Raises ObjectExists; CorruptData when the source is not ``log_bytes`` long; InvalidRequest for
    sizes that Aiven's reader would overflow on, unless ``beyond_java``.
    """
    if not 1 <= chunk_bytes <= MAX_CHUNK_BYTES or source.log_bytes < 1:
        raise InvalidRequest("chunk or log size out of range", chunk_bytes=chunk_bytes, log_bytes=source.log_bytes)
    limit = None if beyond_java else MAX_INT
    if limit is not None and -(-source.log_bytes // chunk_bytes) * chunk_bytes > limit:
        raise InvalidRequest("Aiven's reader cannot read a log this long", log_bytes=source.log_bytes, limit=limit)
    key = object_key(base_key, ObjectKind.LOG)
    stream = _LogStream(source, key, chunk_bytes, level if compression is Compression.ZSTD else None, limit)
    stored = store.put_stream(key, stream.pieces(), part_bytes=part_bytes)
    chunks = stream.chunk_index()
    if stored != chunks.stored_bytes:
        raise CorruptData("the store took another number of bytes", file=key, stored=stored, sent=chunks.stored_bytes)
    return LogObject(chunks, stored, stream.sha256.digest(), stream.crc32c)


def put_indexes(store: ObjectStore, base_key: str, source: SegmentSource) -> IndexesObject:
    """All indexes, one behind the other, never compressed. Raises ObjectExists."""
    parts: dict[IndexKind, bytes | None] = {
        IndexKind.OFFSET: source.offset_index,
        IndexKind.TIME: source.time_index,
        IndexKind.PRODUCER_SNAPSHOT: source.producer_snapshot,
        IndexKind.LEADER_EPOCHS: source.leader_epochs,
        IndexKind.TRANSACTION: source.transaction_index,
    }
    spans: IndexSpans = {}
    position = 0
    for kind in IndexKind:
        part = parts[kind]
        spans[kind] = None if part is None else IndexSpan(position, len(part))
        position += len(part or b"")
    whole = b"".join(parts[kind] or b"" for kind in IndexKind)
    store.put_if_absent(object_key(base_key, ObjectKind.INDEXES), whole)
    return IndexesObject(spans, len(whole), hashlib.sha256(whole).digest())


def put_manifest(store: ObjectStore, base_key: str, manifest: SegmentManifest) -> int:
    """Commits the segment and returns the manifest's bytes. Raises ObjectExists.

    Call `manifest.with_own_size` first when there is a descriptor in it: InvalidRequest otherwise.
    """
    data = format_manifest(manifest)
    if manifest.tierstate is not None and manifest.tierstate.segment.manifest_bytes != len(data):
        raise InvalidRequest("the descriptor names another size of its manifest", bytes=len(data), key=base_key)
    store.put_if_absent(object_key(base_key, ObjectKind.MANIFEST), data)
    return len(data)


def delete_segment(store: ObjectStore, base_key: str) -> None:
    """Idempotent. The manifest goes first: what is half deleted is never taken for a segment."""
    store.delete(object_key(base_key, ObjectKind.MANIFEST))
    store.delete_many([object_key(base_key, kind) for kind in (ObjectKind.LOG, ObjectKind.INDEXES)])


class _LogStream:
    """The stored bytes of a log, and what is learnt while they pass: checksums, sizes of chunks."""

    def __init__(
        self, source: SegmentSource, key: str, chunk_bytes: int, level: int | None, stored_limit: int | None
    ) -> None:
        self.sha256 = hashlib.sha256()
        self.crc32c = 0
        self._source, self._key = source, key
        self._chunk_bytes = chunk_bytes
        self._compressor = None if level is None else zstandard.ZstdCompressor(level=level, write_content_size=True)
        self._stored_limit = stored_limit
        self._stored_sizes: list[int] = []
        self._stored_bytes = 0

    def pieces(self) -> Iterator[Data]:
        plain = self._checked()
        return plain if self._compressor is None else self._compressed(plain, self._compressor)

    def chunk_index(self) -> ChunkIndex:
        """Once all pieces passed."""
        if self._compressor is None:
            return ChunkIndex.of_plain(self._chunk_bytes, self._source.log_bytes)
        return ChunkIndex.of_variable(self._chunk_bytes, self._source.log_bytes, self._stored_sizes)

    def _checked(self) -> Iterator[bytes]:
        seen = 0
        for piece in self._source.log:
            data = bytes(piece)  # no copy of bytes; google-crc32c takes nothing else
            seen += len(data)
            if seen > self._source.log_bytes:
                break
            self.sha256.update(data)
            self.crc32c = google_crc32c.extend(self.crc32c, data)
            yield data
        if seen != self._source.log_bytes:
            raise CorruptData(
                "the log changed its length while it was copied",
                file=self._key,
                expected=self._source.log_bytes,
                seen=f"{seen} or more" if seen > self._source.log_bytes else seen,
            )

    def _compressed(self, plain: Iterator[bytes], compressor: zstandard.ZstdCompressor) -> Iterator[bytes]:
        chunk = bytearray()
        for data in plain:
            rest = memoryview(data)
            while rest:
                taken = rest[: self._chunk_bytes - len(chunk)]
                chunk += taken
                rest = rest[len(taken) :]
                if len(chunk) == self._chunk_bytes:
                    yield self._frame(compressor, chunk)
                    chunk.clear()
        if chunk:
            yield self._frame(compressor, chunk)

    def _frame(self, compressor: zstandard.ZstdCompressor, chunk: bytearray) -> bytes:
        frame = compressor.compress(chunk)
        self._stored_sizes.append(len(frame))
        self._stored_bytes += len(frame)
        if self._stored_limit is not None and self._stored_bytes > self._stored_limit:
            raise InvalidRequest("Aiven's reader cannot read a log object this long", file=self._key)
        return frame
