"""Manifests: written byte for byte as Aiven's, read as strictly as Aiven's reader does, extended where it is blind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange, Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.manifest_json import format_manifest, parse_manifest
from tierstate.storage.segment.reader import read_manifest

from .conftest import BASE_KEY, Golden, WriteSegment

WITH_TRANSACTIONS = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,'
    '"transformedChunkSize":110,"finalTransformedChunkSize":110},"segmentIndexes":{"offset":{"position":0,"size":1},'
    '"timestamp":{"position":1,"size":1},"producerSnapshot":{"position":2,"size":1},'
    '"leaderEpoch":{"position":3,"size":1},"transaction":{"position":4,"size":1}},"compression":false,'
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ",'
    '"topicPartition":{"topic":"topic1","partition":42}},"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":0,'
    '"endOffset":1000,"maxTimestampMs":1000000000,"brokerId":2,"eventTimestampMs":2000000000,'
    '"segmentLeaderEpochs":{"0":100,"1":200,"2":300}}}'
)
"""From Aiven's ``SegmentManifestV1SerdeTest``."""
WITHOUT = WITH_TRANSACTIONS.replace('{"position":4,"size":1}', "null")
ENCRYPTED = WITHOUT.replace(
    '"compression":false,', '"compression":false,"encryption":{"dataKey":"key1:AAECAw==","aad":"CgsMDQ=="},'
)
SINCE_KAFKA_4 = WITHOUT.replace('"2":300}}', '"2":300},"txnIdxEmpty":true}')


@pytest.mark.parametrize("text", [WITH_TRANSACTIONS, WITHOUT, ENCRYPTED, SINCE_KAFKA_4])
def test_aivens_manifests_are_written_byte_for_byte(text: str) -> None:
    assert format_manifest(parse_manifest(text.encode(), source="m")).decode() == text


@pytest.mark.parametrize(
    "bucket", ["aiven/plain", "aiven/zstd", "aiven/zstd-aes", "aiven/bigchunk", "aiven-kafka/epochs"]
)
def test_golden_manifests_are_written_byte_for_byte(golden: Golden, bucket: str) -> None:
    data = golden(bucket).object(ObjectKind.MANIFEST)
    assert format_manifest(parse_manifest(data, source="m")) == data


def test_the_fields_mean_what_they_say() -> None:
    manifest = parse_manifest(ENCRYPTED.encode(), source="m")
    assert manifest.encryption is not None
    assert (manifest.encryption.key_id, manifest.encryption.wrapped_key) == ("key1", b"\x00\x01\x02\x03")
    assert manifest.metadata is not None
    assert (manifest.metadata.topic, manifest.metadata.partition.partition) == ("topic1", 42)
    assert manifest.metadata.leader_epochs.epoch_at(250) == 1
    assert manifest.indexes[IndexKind.TRANSACTION] is None
    assert manifest.tierstate is None


def _edited(edit: Callable[[dict[str, Any]], object], text: str = ENCRYPTED) -> bytes:
    record = json.loads(text)
    edit(record)
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    "data",
    [
        _edited(lambda m: m.update(extra=1)),
        _edited(lambda m: m["chunkIndex"].update(extra=1)),
        _edited(lambda m: m["segmentIndexes"].update(extra=1)),
        _edited(lambda m: m["segmentIndexes"]["offset"].update(extra=1)),
        _edited(lambda m: m["encryption"].update(extra=1)),
        _edited(lambda m: m["segmentIndexes"].pop("transaction")),
        _edited(lambda m: m["segmentIndexes"].update(offset=None)),
        _edited(lambda m: m.pop("compression")),
        _edited(lambda m: m.update(compression="maybe")),
        _edited(lambda m: m.pop("version")),
        _edited(lambda m: m["chunkIndex"].pop("originalFileSize")),
        _edited(lambda m: m["chunkIndex"].update(type="other")),
        _edited(lambda m: m["chunkIndex"].update(originalFileSize=-1)),
        _edited(lambda m: m["chunkIndex"].update(originalChunkSize=0)),
        _edited(lambda m: m["chunkIndex"].update(originalChunkSize=1, originalFileSize=2**62)),
        _edited(lambda m: m["chunkIndex"].update(originalFileSize=2**31)),
        _edited(lambda m: m["chunkIndex"].update(originalChunkSize=1, originalFileSize=2**21 + 1)),
        _edited(lambda m: m["chunkIndex"].update(transformedChunkSize=2**31)),
        _edited(lambda m: m["chunkIndex"].update(originalFileSize=1.5)),
        _edited(lambda m: m["encryption"].update(aad="-_-_")),
        _edited(lambda m: m["encryption"].update(aad="CgsMDQ")),
        b"\xef\xbb\xbf" + ENCRYPTED.encode(),
        b"",
        b"[]",
        b"null",
        ENCRYPTED.encode()[:-1],
        ENCRYPTED.encode() + b"{}",
    ],
)
def test_manifests_that_aivens_reader_rejects_are_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptData, match="file=some/key"):
        parse_manifest(data, source="some/key")


@pytest.mark.parametrize(
    "key", ["AAECAw==", "xx::AAECAw==", "xx:AAECAw==:xx", "id:INVALIDBASE64", "id:", ":", ":AAECAw==", "  :AAECAw=="]
)
def test_a_malformed_data_key_is_corrupt(key: str) -> None:
    with pytest.raises(CorruptData):
        parse_manifest(_edited(lambda m: m["encryption"].update(dataKey=key)), source="m")


@pytest.mark.parametrize(
    "data",
    [
        _edited(lambda m: m.update(version=1)),
        _edited(lambda m: m.update(version=m.pop("version"))),
        _edited(lambda m: m.update(compression=None)),
        _edited(lambda m: m.update(compression="false")),
        _edited(lambda m: m.update(encryption=None)),
        _edited(lambda m: m.pop("remoteLogSegmentMetadata")),
        _edited(lambda m: m.update(remoteLogSegmentMetadata=None)),
        _edited(lambda m: m.update(remoteLogSegmentMetadata=[1, "x"])),
        _edited(lambda m: m["remoteLogSegmentMetadata"].update(startOffset="x", more={})),
    ],
)
def test_manifests_that_aivens_reader_accepts_are_read(data: bytes) -> None:
    assert parse_manifest(data, source="m").chunks.file_bytes == 1000


def test_other_versions_are_refused_not_called_corrupt() -> None:
    with pytest.raises(InvalidRequest, match="version"):
        parse_manifest(_edited(lambda m: m.update(version="2")), source="m")
    with pytest.raises(InvalidRequest, match="2023"):
        parse_manifest(_edited(lambda m: m.pop("segmentIndexes")), source="m")


@pytest.mark.parametrize("count", [0, 3, 300])
def test_our_block_comes_back_whole_and_knows_its_own_size(write_segment: WriteSegment, count: int) -> None:
    store = MemoryStore()
    aborted = tuple(AbortedRange(7, Offset(1300 + 2 * n), Offset(1301 + 2 * n)) for n in range(count))
    segment = write_segment(store, bytes(4321), aborted=aborted)
    manifest = read_manifest(store, BASE_KEY)
    assert manifest.tierstate is not None
    assert manifest.tierstate.segment == segment
    assert manifest.tierstate.aborted == aborted
    assert manifest.tierstate.chunk_first_offsets == (1234, None, None, None, None)
    assert segment.manifest_bytes == store.head(object_key(BASE_KEY, ObjectKind.MANIFEST)).size
    assert manifest.metadata is not None
    assert manifest.metadata.transaction_index_empty is True


def test_a_damaged_block_is_corrupt(write_segment: WriteSegment) -> None:
    store = MemoryStore()
    aborted = tuple(AbortedRange(7, Offset(1300 + 2 * n), Offset(1301 + 2 * n)) for n in range(300))
    write_segment(store, bytes(4321), aborted=aborted, compression=Compression.ZSTD)
    text = store.get(object_key(BASE_KEY, ObjectKind.MANIFEST)).decode()

    def broken(edit: Callable[[dict[str, Any]], object]) -> bytes:
        return _edited(lambda m: edit(m["remoteLogSegmentMetadata"]["tierstate"]), text)

    for data in (
        broken(lambda block: block.pop("descriptor")),
        broken(lambda block: block["descriptor"].pop("log_bytes")),
        broken(lambda block: block["descriptor"].update(log_sha256="xyz")),
        broken(lambda block: block.pop("chunk_first_offsets")),
        broken(lambda block: block["chunk_first_offsets"].pop()),
        broken(lambda block: block.pop("aborted")),
        broken(lambda block: block["aborted"].pop()),
        broken(lambda block: block["aborted"][0].append(1)),
        broken(lambda block: block.update(tier_state_topic_id="short")),
        broken(lambda block: block.update(log_start_offset=-1)),
    ):
        with pytest.raises(CorruptData, match="file=m"):
            parse_manifest(data, source="m")


def test_no_byte_of_a_manifest_of_ours_changes_unseen(write_segment: WriteSegment) -> None:
    store = MemoryStore()
    write_segment(store, bytes(4321))
    data = store.get(object_key(BASE_KEY, ObjectKind.MANIFEST))
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises((CorruptData, InvalidRequest)):
            parse_manifest(damaged, source=f"m, byte {at}")
