"""Chunks of equal size that were swapped: decryption cannot notice (Aiven's AAD has no chunk number), records can."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Folder, Golden, Row, TwoTiers, rows
from tests.log.batches import Batch, record
from tests.tiers import few
from tierstate.fetch.remote import RemoteTier
from tierstate.fetch.remote_parts import RemoteReads, read_parts
from tierstate.log.decode import decode_batches
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import CorruptData
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression, RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.encryption import SegmentCipher
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest_json import with_own_size
from tierstate.storage.segment.reader import SegmentReader, read_manifest
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

KEYS = KeyRing.load(Path(__file__).parent.parent / "data" / "aiven-kafka" / "keyring.toml")
CHUNK_BYTES = 4096


def encrypted(folder: Folder, objects: ObjectStore, segment: RemoteSegment, chunk_bytes: int) -> MemoryStore:
    """Copy the same segment again, in encrypted chunks without compression: all of one size, except the last."""
    cipher, encryption = SegmentCipher.new(KEYS, os.urandom)
    store, base, key = MemoryStore(), segment.offsets.start, segment.object_key
    log, index, times = (folder.file(base, suffix) for suffix in (".log", ".index", ".timeindex"))
    source = SegmentSource((log,), len(log), index, times, b"", b"0\n0\n", None)
    written = put_log(store, key, source, Compression.NONE, cipher=cipher, chunk_bytes=chunk_bytes)
    indexes = put_indexes(store, key, source, cipher=cipher)
    described = replace(read_manifest(objects, key), compression=False, encryption=encryption)
    put_manifest(store, key, with_own_size(replace(described, chunks=written.chunks, indexes=indexes.spans)))
    return store


def read_as_planned(store: ObjectStore, segment: RemoteSegment, read_bytes: int) -> Iterator[Row]:
    """Yield the rows that a split reads."""
    reads = RemoteReads(store, KEYS, Isolation.READ_UNCOMMITTED, read_bytes)
    end = Offset(segment.offsets.end + 1)
    for piece in read_parts([(segment, segment.offsets)], reads):
        yield from rows(decode_batches(piece.data, source="segment", topic="t", partition=0, end=end))


def read(store: MemoryStore, segment: RemoteSegment, read_bytes: int) -> Iterator[Row]:
    """Yield the rows that a consumer reads, from the segment's first offset to its last."""
    tier, at = RemoteTier(store, ChunkCache(1 << 20), SystemClock(), keys=KEYS), segment.offsets.start
    while at <= segment.offsets.end:
        left = OffsetRange(at, segment.offsets.end)
        piece = tier.read(segment, left, read_bytes, Isolation.READ_UNCOMMITTED)
        end = Offset(segment.offsets.end + 1)
        yield from rows(decode_batches(piece.data, source="segment", topic="t", partition=0, start=at, end=end))
        at = piece.next_offset


Read = Callable[[MemoryStore, RemoteSegment, int], Iterator[Row]]


@pytest.mark.parametrize("read", [read, read_as_planned])
@pytest.mark.parametrize("read_bytes", few([1, 3 * CHUNK_BYTES, 1 << 20], [3 * CHUNK_BYTES]))
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("case", ["none", "zstd"])
def test_swapped_chunks_are_corrupt_and_nothing_wrong_is_read_before(
    case: str, foreign: bool, read_bytes: int, read: Read, golden_log: Callable[..., Golden]
) -> None:
    golden = golden_log(case, copies=1, foreign=foreign, older=True, chunk_bytes=CHUNK_BYTES)
    (segment,) = golden.segments
    whole = encrypted(golden.folder, golden.tiers.store, segment, CHUNK_BYTES)
    expected = list(read(whole, segment, read_bytes))
    assert len(expected) == segment.record_count
    log_key = object_key(segment.object_key, ObjectKind.LOG)
    index = read_manifest(whole, segment.object_key).chunks
    stored = whole.get(log_key)
    chunks = [stored[chunk.stored_start : chunk.stored_stop] for chunk in index]
    swaps = list(combinations(range(len(chunks) - 1), 2))
    assert len(swaps) >= 10
    read_before = 0
    for one, other in swaps[:: len(swaps) // 10]:
        order = list(chunks)
        order[one], order[other] = order[other], order[one]
        whole.delete(log_key)
        whole.put_if_absent(log_key, b"".join(order))
        reader = SegmentReader.open(whole, segment.object_key, keys=KEYS)
        assert len(b"".join(reader.read_log())) == segment.log_bytes, "storage alone cannot tell"
        records: list[Row] = []
        with pytest.raises(CorruptData):
            records.extend(read(whole, segment, read_bytes))
        assert records == expected[: len(records)]
        read_before = max(read_before, len(records))
    # a read of everything at once meets the border before it hands out anything
    assert read_before or read_bytes > segment.log_bytes, "no swap left anything to read: the test shows little"


RECORDS, BATCHES = 5, 8


@pytest.fixture
def aligned(tmp_path: Path, full: bool) -> Callable[[bool], tuple[MemoryStore, RemoteSegment]]:
    """Return batches of one size, one a chunk: borders of chunks are borders of batches, and do not show a swap.

    A segment that is not full lacks its last record, like one of a topic that was compacted once.
    """
    firsts = range(0, RECORDS * BATCHES, RECORDS)
    numbers = {first: range(RECORDS - (not full and first == firsts[-1])) for first in firsts}
    batches = [
        Batch(first, [record(at, None, b"%08d" % (first + at)) for at in within]).bytes
        for first, within in numbers.items()
    ]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{0:020d}.index").write_bytes(
        b"".join(struct.pack(">ii", first, number * len(batches[0])) for number, first in enumerate(firsts))
    )
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    folder = Folder(tmp_path)

    def make(foreign: bool) -> tuple[MemoryStore, RemoteSegment]:
        place = TopicIdPartition(TopicId.of(b"golden-topic-id!"), 0)
        tiers = TwoTiers(place, "t", MemoryStore())
        tiers.elect(folder.lineage())
        segment = tiers.copy(folder, 0, RECORDS * BATCHES, chunk_bytes=len(batches[0]), foreign=foreign, older=True)
        tiers.view.close()
        return encrypted(folder, tiers.store, segment, len(batches[0])), segment

    return make


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("read", [read, read_as_planned])
@pytest.mark.parametrize("read_bytes", few([1, 1 << 20], [1 << 20]))
@pytest.mark.parametrize("foreign", [False, True])
def test_whole_batches_that_changed_places_are_corrupt_too(
    full: bool, foreign: bool, read_bytes: int, read: Read, aligned: Callable[[bool], tuple[MemoryStore, RemoteSegment]]
) -> None:
    """A batch that comes too early looks like a legal gap. Our manifest knows which chunk is its own. In a foreign
    segment only the next batch shows it: its offset goes back, or there should be none."""
    store, segment = aligned(foreign)
    assert [row[0] for row in read(store, segment, read_bytes)] == list(range(RECORDS * BATCHES - (not full)))
    log_key = object_key(segment.object_key, ObjectKind.LOG)
    stored = store.get(log_key)
    chunks = [stored[part.stored_start : part.stored_stop] for part in read_manifest(store, segment.object_key).chunks]
    assert len(chunks) == BATCHES
    message = "does not begin where|follow the last" if full else "do not increase" if foreign else "another chunk"
    for one, other in combinations(range(BATCHES if full else BATCHES - 1), 2):
        order = list(chunks)
        order[one], order[other] = order[other], order[one]
        store.delete(log_key)
        store.put_if_absent(log_key, b"".join(order))
        reads: list[Row] = []
        with pytest.raises(CorruptData, match=message):
            reads.extend(read(store, segment, read_bytes))
        if full or not foreign:
            assert [row[0] for row in reads] == list(range(len(reads))), "nothing was left out before it was noticed"
