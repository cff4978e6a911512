"""Segments written by Aiven's Java classes: read to the last byte, and written again to the last byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.keys import ObjectKeys, ObjectKind, object_key
from tierstate.storage.segment.manifest import IndexKind, SegmentManifest
from tierstate.storage.segment.reader import SegmentReader, read_manifest
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

from .conftest import Golden

SOURCE_SHA256 = "74e746fd"
AIVEN = ["aiven/plain", "aiven/zstd", "aiven/zstd-aes", "aiven/bigchunk"]
KAFKA = {
    "aiven-kafka/epochs/bucket": None,
    "aiven-kafka/gzip/bucket": "gzip/gold-s7b-gzip-0/00000000000000001275",
    "aiven-kafka/transactions/bucket": "transactions/gold-s7b-transactions-0/00000000000000000034",
    "aiven-kafka/abort-marker-in-next-segment/bucket": "opentxn/gold-s7b-opentxn-0/00000000000000000846",
}


@pytest.mark.parametrize("bucket", AIVEN)
def test_every_layout_reads_back_the_source(golden: Golden, data_folder: Path, bucket: str) -> None:
    source = (data_folder / "aiven" / "source.log").read_bytes()
    assert hashlib.sha256(source).hexdigest().startswith(SOURCE_SHA256)
    segment = golden(bucket)
    assert b"".join(segment.reader().read_log()) == source
    verified = segment.reader().verify()
    assert verified.log_sha256 == hashlib.sha256(source).digest()
    assert not verified.against_checksums


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("bucket", AIVEN)
def test_every_range_is_the_slice_of_the_source(golden: Golden, data_folder: Path, bucket: str, cached: bool) -> None:
    source = (data_folder / "aiven" / "source.log").read_bytes()
    reader = golden(bucket).reader(ChunkCache(1_000_000) if cached else None)
    edges = sorted({edge + shift for edge in (0, 4096, 8192, len(source)) for shift in (-1, 0, 1, 13, 2048)})
    for start in (edge for edge in edges if 0 <= edge < len(source)):
        for stop in (edge for edge in edges if edge > start):
            assert b"".join(reader.plain_range(start, stop)) == source[start:stop]
    with pytest.raises(InvalidRequest):
        reader.plain_range(len(source), len(source) + 1)


@pytest.mark.parametrize("bucket", AIVEN)
def test_indexes_read_back_plain(golden: Golden, bucket: str) -> None:
    reader = golden(bucket).reader()
    sizes = [None if (data := reader.indexes(kind)) is None else len(data) for kind in IndexKind]
    assert sizes == ([64, 36, 10, 11, 34] if bucket == "aiven/zstd-aes" else [64, 36, 0, 11, None])


@pytest.mark.parametrize(("bucket", "files"), KAFKA.items())
def test_segments_of_real_kafka_records_read_back(
    golden: Golden, data_folder: Path, bucket: str, files: str | None
) -> None:
    reader = golden(bucket).reader()
    log = b"".join(reader.read_log())
    assert len(log) == reader.plain_bytes
    assert reader.manifest.metadata is not None
    assert int.from_bytes(log[:8], "big") == reader.manifest.metadata.start_offset
    if files is not None:
        stem = data_folder / "kafka-logs" / files
        assert log == stem.with_suffix(".log").read_bytes()
        assert reader.indexes(IndexKind.TIME) == stem.with_suffix(".timeindex").read_bytes()


def test_an_encrypted_segment_without_a_key_ring_is_refused(golden: Golden) -> None:
    segment = golden("aiven/zstd-aes")
    with pytest.raises(InvalidRequest, match="segment is encrypted and no key ring was given"):
        SegmentReader.open(segment.store, segment.base_key)


def test_swapped_bytes_of_an_encrypted_chunk_are_corrupt(golden: Golden) -> None:
    segment = golden("aiven/zstd-aes")
    data = bytearray(segment.object(ObjectKind.LOG))
    data[2000] ^= 1
    segment.store.delete(object_key(segment.base_key, ObjectKind.LOG))
    segment.store.put_if_absent(object_key(segment.base_key, ObjectKind.LOG), data)
    with pytest.raises(CorruptData, match="decryption fails"):
        list(segment.reader().read_log())


@pytest.mark.parametrize(
    ("bucket", "compression"), [("aiven/plain", Compression.NONE), ("aiven/zstd", Compression.ZSTD)]
)
def test_our_writer_writes_what_aiven_wrote(
    golden: Golden, data_folder: Path, bucket: str, compression: Compression
) -> None:
    theirs = golden(bucket)
    reader = theirs.reader()
    log = (data_folder / "aiven" / "source.log").read_bytes()
    offsets, times, snapshot, epochs, transactions = (reader.indexes(kind) for kind in IndexKind)
    source = SegmentSource(
        [memoryview(log)[:5000], log[5000:]],
        len(log),
        offsets or b"",
        times or b"",
        snapshot or b"",
        epochs or b"",
        transactions,
    )
    metadata = reader.manifest.metadata
    assert metadata is not None
    base = ObjectKeys("pfx/").base_key(
        metadata.topic,
        metadata.partition.topic_id,
        metadata.partition.partition,
        metadata.start_offset,
        metadata.segment_id,
    )
    assert base == theirs.base_key
    ours = MemoryStore()
    written = put_log(ours, base, source, compression, chunk_bytes=4096)
    indexes = put_indexes(ours, base, source)
    manifest = SegmentManifest(written.chunks, indexes.spans, compression is Compression.ZSTD, None, metadata)
    put_manifest(ours, base, manifest)
    assert ours.get(object_key(base, ObjectKind.INDEXES)) == theirs.object(ObjectKind.INDEXES)
    assert b"".join(SegmentReader.open(ours, base).read_log()) == log
    if compression is Compression.NONE:
        assert ours.get(object_key(base, ObjectKind.LOG)) == theirs.object(ObjectKind.LOG)
        assert ours.get(object_key(base, ObjectKind.MANIFEST)) == theirs.object(ObjectKind.MANIFEST)
    else:  # another zstd version may compress to other sizes
        assert read_manifest(ours, base).chunks.count == reader.manifest.chunks.count
        assert read_manifest(ours, base).metadata == metadata
