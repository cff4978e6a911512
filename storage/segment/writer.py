"""Writes a segment: the log, then the indexes, then the manifest, which commits the segment. Each step is a separate
call, because the manifest is made from the results of the others. `transform.py` makes the log's stored bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import google_crc32c

from ...state.errors import CorruptData, InvalidRequest
from ...state.object_keys import ObjectKind, object_key, require_own
from ...state.segment import Compression, CopyAttempt, RemoteSegment
from ..object_store import DEFAULT_PART_BYTES, Data, ObjectWriter
from .chunks import MAX_CHUNK_BYTES, MAX_INT, ChunkIndex
from .encryption import SegmentCipher
from .manifest import IndexKind, IndexSpan, IndexSpans, SegmentManifest
from .manifest_json import format_manifest
from .transform import ChunkForm, LogTransform

DEFAULT_CHUNK_BYTES = 1024 * 1024
DEFAULT_LEVEL = 3
"""The default compression level of zstd and of Aiven's plugin."""


Pace = Callable[[int], object]
"""A function that is called with the number of bytes to be sent next. It may wait. Its errors end the write."""


def at_once(size: int) -> None:
    """Do not wait: the pace is unlimited."""


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """The input of a copy. ``log`` yields the plain log, ``log_bytes`` in all, in pieces of any size.

    The other fields are Kafka's files. ``leader_epochs`` is the text of the leader epoch checkpoint.
    ``transaction_index`` is None if the segment has no such index.
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
    """A written log object. ``sha256`` and ``crc32c`` cover the plain log. ``chunks`` has plain and stored sizes.

    ``object_crc32c`` and ``chunk_crc32c`` are the CRC-32C of the stored object and of each stored chunk.
    """

    chunks: ChunkIndex
    stored_bytes: int
    sha256: bytes
    crc32c: int
    object_crc32c: int
    chunk_crc32c: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexesObject:
    """A written indexes object. ``sha256`` covers the plain bytes, ``object_crc32c`` the stored bytes."""

    spans: IndexSpans
    stored_bytes: int
    sha256: bytes
    object_crc32c: int


def plan_compression(setting: str, first_batch_codec: int) -> Compression:
    """Return the compression to use. ``auto`` means zstd only for uncompressed batches (zstd over zstd gains 0.8 %).

    ``first_batch_codec`` has the codec bits of the first batch's attributes: 0 means uncompressed.
    """
    if setting == "auto":
        return Compression.ZSTD if first_batch_codec == 0 else Compression.NONE
    return Compression(setting)


def put_log(
    store: ObjectWriter,
    base_key: str,
    source: SegmentSource,
    compression: Compression,
    *,
    cipher: SegmentCipher | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    level: int = DEFAULT_LEVEL,
    part_bytes: int = DEFAULT_PART_BYTES,
    pace: Pace = at_once,
) -> LogObject:
    """Stream the log to the store. With a ``cipher``, each chunk is encrypted.

    Memory does not depend on the log's length: the store's parts (`parts.PartShares`) and `LogTransform.pieces`.
    Raises ObjectExists, and CorruptData if the source is not ``log_bytes`` long. Also raises InvalidRequest for sizes
    with which Aiven's reader would overflow.
    """
    if not 1 <= chunk_bytes <= MAX_CHUNK_BYTES or source.log_bytes < 1:
        raise InvalidRequest("chunk or log size out of range", chunk_bytes=chunk_bytes, log_bytes=source.log_bytes)
    form = ChunkForm(chunk_bytes, level if compression is Compression.ZSTD else None, cipher)
    if -(-source.log_bytes // chunk_bytes) * form.whole_chunk_bytes > MAX_INT:
        raise InvalidRequest("Aiven's reader cannot read a log this long", log_bytes=source.log_bytes, limit=MAX_INT)
    key = object_key(base_key, ObjectKind.LOG)
    log = LogTransform(source.log, source.log_bytes, form, key)

    def paced(pieces: Iterable[Data]) -> Iterator[Data]:
        for piece in pieces:
            pace(len(piece))
            yield piece

    with closing(log.pieces()) as pieces:
        stored = store.put_stream(key, paced(pieces), part_bytes=part_bytes)
    chunks = log.chunk_index()
    if stored != chunks.stored_bytes:
        raise CorruptData("the store took another number of bytes", file=key, stored=stored, sent=chunks.stored_bytes)
    return LogObject(chunks, stored, log.sha256.digest(), log.crc32c, log.stored_crc32c, tuple(log.chunk_crc32c))


def put_indexes(
    store: ObjectWriter,
    base_key: str,
    source: SegmentSource,
    *,
    cipher: SegmentCipher | None = None,
    pace: Pace = at_once,
) -> IndexesObject:
    """Write all indexes, one after the other, uncompressed. With a ``cipher``, each index that is not empty is
    encrypted. Raises ObjectExists.
    """
    first = (source.offset_index, source.time_index, source.producer_snapshot, source.leader_epochs)
    parts = (*first, source.transaction_index)
    spans: IndexSpans = {}
    plain, stored = hashlib.sha256(), bytearray()
    for kind, part in zip(IndexKind, parts, strict=True):
        if part is None:
            spans[kind] = None
            continue
        plain.update(part)
        stored_part = part if cipher is None else cipher.encrypt(part)
        spans[kind] = IndexSpan(len(stored), len(stored_part))
        stored += stored_part
    pace(len(stored))
    store.put_if_absent(object_key(base_key, ObjectKind.INDEXES), bytes(stored))
    return IndexesObject(spans, len(stored), plain.digest(), google_crc32c.value(bytes(stored)))


def put_manifest(store: ObjectWriter, base_key: str, manifest: SegmentManifest, *, pace: Pace = at_once) -> int:
    """Write the manifest, which commits the segment, and return its size in bytes. Raises ObjectExists.

    A manifest with a descriptor must be a result of `manifest_json.with_own_size`; otherwise raises InvalidRequest.
    """
    data = format_manifest(manifest)
    if manifest.tierstate is not None and manifest.tierstate.segment.manifest_bytes != len(data):
        raise InvalidRequest("the descriptor names another size of its manifest", bytes=len(data), key=base_key)
    pace(len(data))
    store.put_if_absent(object_key(base_key, ObjectKind.MANIFEST), data)
    return len(data)


def delete_segment(store: ObjectWriter, segment: CopyAttempt | RemoteSegment) -> None:
    """Delete a segment's objects, the manifest first: without it, no reader takes the rest for a segment. Idempotent.

    Raises CorruptData, and deletes nothing, if the object key is the name of another segment.
    """
    require_own(segment)
    base_key = segment.object_key
    store.delete(object_key(base_key, ObjectKind.MANIFEST))
    store.delete_many([object_key(base_key, kind) for kind in (ObjectKind.LOG, ObjectKind.INDEXES)])
