"""Damage that no batch's own CRC shows: another base offset, another leader epoch, and batches of another log."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c
import pytest

from tests.fetch.test_swapped_chunks import Read, read, read_as_planned
from tests.fetch.two_tiers import Golden, Row
from tierstate.log.batch import iter_batches
from tierstate.state.errors import CorruptData
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore

FIELDS = {"base offset": range(8), "leader epoch": range(12, 16)}


@pytest.mark.parametrize("chunk_bytes", [4096, 1 << 20])
@pytest.mark.parametrize("read_bytes", [1, 1 << 20])
@pytest.mark.parametrize("read", [read, read_as_planned])
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_any_batch_is_refused_before_its_records_are_handed_out(
    field: str, read: Read, read_bytes: int, chunk_bytes: int, golden_log: Callable[..., Golden]
) -> None:
    golden = golden_log("none", copies=1, chunk_bytes=chunk_bytes, compression=Compression.NONE)
    (segment,) = golden.segments
    assert segment.record_count == segment.offsets.end - segment.offsets.start + 1, "without gaps or transactions"
    store, key = golden.tiers.store, object_key(segment.object_key, ObjectKind.LOG)
    assert isinstance(store, MemoryStore)
    whole, expected = store.get(key), list(read(store, segment, read_bytes))
    headers = list(iter_batches(whole, source="log"))
    some = (headers[0], headers[1], headers[len(headers) // 2], headers[-1])
    for header in some if read_bytes > 1 else some[-1:]:
        for byte in FIELDS[field]:
            damaged = bytearray(whole)
            damaged[header.position + byte] ^= 1
            store.delete(key)
            store.put_if_absent(key, bytes(damaged))
            records: list[Row] = []
            with pytest.raises(CorruptData):
                records.extend(read(store, segment, read_bytes))
            assert records == expected[: len(records)]
            assert len(records) <= header.base_offset - segment.offsets.start


@pytest.mark.parametrize("chunk_bytes", [4096, 1 << 20])
@pytest.mark.parametrize("read_bytes", [1, 1 << 20])
def test_a_read_of_a_whole_segment_refuses_another_log_of_the_same_offsets(
    read_bytes: int, chunk_bytes: int, golden_log: Callable[..., Golden]
) -> None:
    golden = golden_log("none", copies=1, chunk_bytes=chunk_bytes, compression=Compression.NONE, older=True)
    (segment,) = golden.segments
    store, key = golden.tiers.store, object_key(segment.object_key, ObjectKind.LOG)
    another = bytearray(store.get(key))
    header = list(iter_batches(bytes(another), source="log"))[-1]
    batch = memoryview(another)[header.position : header.position + header.size_bytes]
    batch[-3] ^= 1  # a byte of its last value
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    list(iter_batches(bytes(another), source="log"))
    store.delete(key)
    store.put_if_absent(key, bytes(another))
    with pytest.raises(CorruptData, match="not the one that was copied"):
        list(read_as_planned(store, segment, read_bytes))
