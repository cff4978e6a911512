"""A small read of a compressed chunk opens only a part of it; reading on opens the rest, whole and checked."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.conftest import BASE_KEY, WriteSegment
from tests.storage.key_rings import load_ring
from tests.storage.test_chunk_cache import Watched, reader_of
from tierstate.state.errors import CorruptData
from tierstate.state.offsets import ByteRange
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.chunks import Chunk
from tierstate.storage.segment.disk_cache import open_disk_cache
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.log_chunks import LogChunks
from tierstate.storage.segment.reader import SegmentReader

STEP_BYTES = 128 * 1024
CHUNK = 6 * STEP_BYTES
CHANCE = random.Random(7)
LOG = b"".join(CHANCE.choices([CHANCE.randbytes(6) for _ in range(500)], k=3 * CHUNK // 6))


@pytest.fixture
def store(write_segment: WriteSegment) -> Watched:
    return written(write_segment)


def written(write_segment: WriteSegment, keys: KeyRing | None = None) -> Watched:
    store = Watched()
    write_segment(store, LOG, compression=Compression.ZSTD, chunk_bytes=CHUNK, keys=keys)
    return store


def read(reader: SegmentReader, start: int, stop: int, *, alone: bool = True) -> bytes:
    return b"".join(reader.plain_range(start, stop, alone=alone))


def stored_bytes(reader: SegmentReader, chunk: int) -> int:
    return reader.manifest.chunks.chunk(chunk).stored_size


def test_a_small_read_unpacks_no_more_than_it_needs_or_twice_as_much_as_the_one_before(store: Watched) -> None:
    cache = ChunkCache(100 * MIB)
    reader = reader_of(store, cache)
    assert read(reader, CHUNK + 1000, CHUNK + 2000) == LOG[CHUNK + 1000 : CHUNK + 2000]
    assert cache.counts.bytes == 2000 + stored_bytes(reader, 1)
    for position, unpacked in ((2 * STEP_BYTES, 2 * STEP_BYTES + 1), (2 * STEP_BYTES + 1, 4 * STEP_BYTES + 2)):
        assert read(reader, CHUNK + position, CHUNK + position + 1) == LOG[CHUNK + position :][:1]
        assert cache.counts.bytes == unpacked + stored_bytes(reader, 1)
    assert len(store.ranges) == 1


def test_a_reader_in_order_opens_a_chunk_once_and_whole(store: Watched) -> None:
    cache = ChunkCache(100 * MIB)
    reader = reader_of(store, cache)
    assert read(reader, 0, 100, alone=False) == LOG[:100]
    assert cache.counts.bytes == CHUNK


def test_a_begun_chunk_becomes_whole_without_another_request_or_more_room(store: Watched) -> None:
    cache = ChunkCache(100 * MIB)
    reader = reader_of(store, cache)
    read(reader, 0, 100)
    assert read(reader, CHUNK - 10, CHUNK) == LOG[CHUNK - 10 : CHUNK]
    assert (cache.counts.bytes, len(store.ranges)) == (CHUNK, 1)


RANGES = st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 2 * CHUNK), st.booleans())


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_reads_in_any_order_give_the_log(write_segment: WriteSegment, tmp_path: Path, encrypted: bool) -> None:
    keys = load_ring(tmp_path, "key1", "key1") if encrypted else None
    store = written(write_segment, keys)

    @given(st.lists(RANGES, min_size=1, max_size=8), st.sampled_from([100 * MIB, 2 * CHUNK, 10]))
    def tried(ranges: list[tuple[int, int, bool]], max_bytes: int) -> None:
        store.ranges.clear()
        cache = ChunkCache(max_bytes)
        reader = SegmentReader.open(store, BASE_KEY, keys=keys, cache=cache)
        for start, size, alone in ranges:
            assert read(reader, start, start + size, alone=alone) == LOG[start : start + size]
            assert cache.counts.bytes <= max(max_bytes, 2 * CHUNK)
        if max_bytes == 100 * MIB:
            positions = [at for start, stop in store.ranges for at in range(start, stop, 64)]
            assert len(positions) == len(set(positions)), "a byte came twice"

    tried()


def test_readers_at_once_that_want_different_parts_share_one_request(store: Watched) -> None:
    cache, go_on = ChunkCache(100 * MIB), threading.Event()
    reader = reader_of(store, cache)

    def wait(range: ByteRange) -> None:
        go_on.wait(30)

    store.before = wait

    def one(number: int) -> bytes:
        return read(reader, 0, number * STEP_BYTES + 7)

    with ThreadPoolExecutor(6) as pool:
        reading = [pool.submit(one, 0)]
        while not store.ranges:
            threading.Event().wait(0.001)
        reading += [pool.submit(one, number) for number in range(1, 6)]
        while cache.counts.hits + cache.counts.misses < 6:
            threading.Event().wait(0.001)
        go_on.set()
        assert [len(each.result()) for each in reading] == [number * STEP_BYTES + 7 for number in range(6)]
    assert len(store.ranges) == 1


def test_damage_behind_a_small_read_is_found_by_reading_on_and_not_kept(store: Watched) -> None:
    sound = store.get(BASE_KEY + ".log")
    cache = ChunkCache(100 * MIB)
    reader = reader_of(store, cache)
    reader.log.checksums = ()  # as in a release that kept none
    end = stored_bytes(reader, 0)
    replace(store, sound[: end - 2000] + bytes(2000) + sound[end:])
    assert read(reader, 0, 100) == LOG[:100]
    for _ in range(2):
        with pytest.raises(CorruptData, match=r"chunk.*chunk=0 position=0"):
            read(reader, CHUNK - 10, CHUNK)
    replace(store, sound)
    assert read(reader, CHUNK - 10, CHUNK) == LOG[CHUNK - 10 : CHUNK]


def replace(store: Watched, data: bytes) -> None:
    store.delete(BASE_KEY + ".log")
    store.put_if_absent(BASE_KEY + ".log", data)


def test_a_chunk_for_the_disk_cache_is_opened_whole(store: Watched, tmp_path: Path) -> None:
    disk = open_disk_cache(tmp_path, 100 * MIB)
    assert disk is not None
    cache = ChunkCache(100 * MIB, disk)
    read(reader_of(store, cache), 0, 100)
    assert cache.counts.bytes == CHUNK
    assert disk.counts.bytes >= stored_bytes(reader_of(store, cache), 0)
    cache.close()


def test_a_frame_that_wants_more_memory_than_its_chunk_is_opened_as_a_whole() -> None:
    plain = LOG[:CHUNK]
    frame = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27)
    ).compressobj()
    data = frame.compress(plain) + frame.flush()
    # RFC 8878, 3.1.1.1: the same frame, with its size
    wide = data[:4] + bytes([data[4] | 2 << 6]) + data[5:6] + CHUNK.to_bytes(4, "little") + data[6:]
    assert zstandard.get_frame_parameters(wide).window_size == 1 << 27
    assert zstandard.ZstdDecompressor().decompress(wide) == plain
    chunks = LogChunks(MemoryStore(), "log", compressed=True, cipher=None)
    chunk = Chunk(0, 0, CHUNK, 0, len(wide))
    assert chunks.beginning(chunk, wide, 10) is None
    usual = zstandard.ZstdCompressor().compress(plain)
    assert chunks.beginning(chunk, usual, 10) == plain[:10]
    assert chunks.beginning(Chunk(0, 0, CHUNK + 1, 0, len(wide)), usual, 10) is None
    with pytest.raises(CorruptData, match="cannot be decompressed"):
        chunks.beginning(chunk, b"no frame", 10)
