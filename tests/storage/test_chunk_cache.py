"""The chunk cache: bounded, one load for each chunk, and one request for adjacent chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.storage.conftest import BASE_KEY, WriteSegment
from tierstate.state.errors import CorruptData, StorageUnavailable
from tierstate.state.offsets import ByteRange
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.in_order import Stopped
from tierstate.storage.segment.reader import SegmentReader

LOG = bytes(range(256)) * 40  # 10,240 bytes: eleven chunks of 1,000


class Watched(MemoryStore):
    """A store that records the ranges asked of it; a test may let something happen before an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.before: Callable[[ByteRange], None] = lambda range: None

    def get_range(self, key: str, range: ByteRange) -> bytes:
        self.ranges.append((range.start, range.stop))
        self.before(range)
        return super().get_range(key, range)


@pytest.fixture
def store(write_segment: WriteSegment) -> Watched:
    store = Watched()
    write_segment(store, LOG)
    return store


def reader_of(store: Watched, cache: ChunkCache, *, parallel: int = 4) -> SegmentReader:
    return SegmentReader.open(store, BASE_KEY, cache=cache, parallel=parallel)


def read(reader: SegmentReader, chunks: Sequence[int]) -> list[bytes]:
    return [b"".join(reader.plain_range(id * 1000, id * 1000 + 1000)) for id in chunks]


def test_simultaneous_readers_share_one_load(store: Watched) -> None:
    cache, asking, go_on = ChunkCache(10_000), threading.Barrier(9), threading.Event()

    def wait(range: ByteRange) -> None:
        go_on.wait(30)

    store.before = wait

    def ask() -> bytes:
        asking.wait(30)
        return b"".join(reader_of(store, cache).plain_range(0, 1000))

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask) for _ in range(8)]
        asking.wait(30)
        while cache.counts.hits + cache.counts.misses < 8:
            threading.Event().wait(0.001)
        go_on.set()
        assert {each.result() for each in futures} == {LOG[:1000]}
    assert store.ranges == [(0, 1000)]
    assert (cache.counts.misses, cache.counts.hits) == (1, 7)


def test_adjacent_missing_chunks_come_by_one_request(store: Watched) -> None:
    cache = ChunkCache(100_000)
    reader = reader_of(store, cache)
    read(reader, [3])
    assert b"".join(reader.plain_range(500, 7500)) == LOG[500:7500]
    assert store.ranges == [(3000, 4000), (0, 3000), (4000, 8000)]
    assert b"".join(reader.read_log()) == LOG
    assert store.ranges[3:] == [(8000, 10240)]


def test_it_never_holds_more_than_its_bytes_and_drops_the_least_recently_used(store: Watched) -> None:
    cache = ChunkCache(2500)
    reader = reader_of(store, cache)
    read(reader, [0, 1, 0, 2])
    assert (cache.counts.bytes, cache.counts.evictions) == (2000, 1)
    store.ranges.clear()
    read(reader, [0])
    assert store.ranges == []
    read(reader, [1])
    assert store.ranges == [(1000, 2000)]


def test_a_chunk_larger_than_the_cache_stays_until_the_next_one(store: Watched) -> None:
    cache = ChunkCache(10)
    reader = reader_of(store, cache)
    read(reader, [0, 0, 0])
    assert len(store.ranges) == 1
    read(reader, [1])
    assert cache.counts.bytes == 1000


def test_a_failed_load_is_not_kept(store: Watched) -> None:
    cache = ChunkCache(10_000)
    reader = reader_of(store, cache)

    def fail(range: ByteRange) -> None:
        raise StorageUnavailable("the store does not answer")

    store.before = fail
    with pytest.raises(StorageUnavailable):
        read(reader, [0])
    store.before = lambda range: None
    assert read(reader, [0]) == [LOG[:1000]]


def test_whole_chunks_of_a_request_that_fails_midway_stay(store: Watched) -> None:
    cache = ChunkCache(10_000)
    data = bytearray(store.get(BASE_KEY + ".log"))
    store.delete(BASE_KEY + ".log")
    store.put_if_absent(BASE_KEY + ".log", data[:2500])
    with pytest.raises(CorruptData, match=r"shorter than its manifest says.*chunk=2 position=0"):
        b"".join(reader_of(store, cache).plain_range(0, 5000))
    assert cache.counts.bytes == 2000


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, Stopped])
def test_an_interrupted_load_goes_to_a_waiting_reader(store: Watched, interruption: type[BaseException]) -> None:
    cache, started, go_on = ChunkCache(10_000), threading.Event(), threading.Event()
    turns = iter([True, False])

    def interrupt(range: ByteRange) -> None:
        if next(turns):
            started.set()
            go_on.wait(30)
            raise interruption

    store.before = interrupt

    def first() -> None:
        with pytest.raises(interruption):
            read(reader_of(store, cache), [0])

    with ThreadPoolExecutor(2) as pool:
        loading = pool.submit(first)
        started.wait(30)
        waiting = pool.submit(read, reader_of(store, cache), [0])
        while cache.counts.hits == 0:
            threading.Event().wait(0.001)
        go_on.set()
        assert waiting.result(30) == [LOG[:1000]]
        loading.result(30)


def test_a_reader_that_waits_for_a_load_ahead_never_sees_its_error(store: Watched) -> None:
    cache, started, go_on = ChunkCache(10_000), threading.Event(), threading.Event()
    reader = reader_of(store, cache)
    turns = iter([True, False])

    def fail_once(range: ByteRange) -> None:
        if next(turns):
            started.set()
            go_on.wait(30)
            raise StorageUnavailable("the store does not answer")

    store.before = fail_once
    chunks = reader.chunks_of(0, 1000)
    with ThreadPoolExecutor(2) as pool:
        ahead = pool.submit(cache.load_ahead, reader.log, chunks, threading.Event())
        started.wait(30)
        waiting = pool.submit(read, reader, [0])
        while cache.counts.hits == 0:
            threading.Event().wait(0.001)
        go_on.set()
        assert waiting.result(30) == [LOG[:1000]]
        assert isinstance(ahead.exception(30), StorageUnavailable)


def test_chunks_loaded_ahead_count_until_they_are_read_or_dropped(store: Watched) -> None:
    cache = ChunkCache(2000)
    reader = reader_of(store, cache)
    assert cache.load_ahead(reader.log, reader.chunks_of(0, 2000), threading.Event()) == 2000
    assert cache.unused_bytes == 2000
    read(reader, [0])
    assert cache.unused_bytes == 1000
    read(reader, [5])
    assert cache.unused_bytes == 0


def test_an_error_names_object_chunk_and_reason(write_segment: WriteSegment) -> None:
    store = Watched()
    write_segment(store, LOG, compression=Compression.ZSTD)
    sizes = SegmentReader.open(store, BASE_KEY).manifest.chunks
    data = bytearray(store.get(BASE_KEY + ".log"))
    data[sizes.chunk(3).stored_start + 9] ^= 0xFF
    store.delete(BASE_KEY + ".log")
    store.put_if_absent(BASE_KEY + ".log", data)
    with pytest.raises(CorruptData) as corrupt:
        read(reader_of(store, ChunkCache(10_000)), [3])
    assert corrupt.value.facts["file"] == BASE_KEY + ".log"
    assert corrupt.value.facts["chunk"] == 3
    assert "other bytes" in str(corrupt.value)


class InPieces(MemoryStore):
    """A store that answers in pieces of odd sizes, as a socket does."""

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        return super().stream_range(key, range, 300_000)


def test_a_view_stays_valid_while_the_cache_reuses_dropped_memory(write_segment: WriteSegment) -> None:
    log = b"".join(number.to_bytes(4, "big") for number in range(6 * MIB // 4))
    store = InPieces()
    write_segment(store, log, chunk_bytes=MIB)
    cache = ChunkCache(2 * MIB)
    reader = SegmentReader.open(store, BASE_KEY, cache=cache)
    kept = [piece for start in range(0, len(log), MIB) for piece in reader.plain_range(start + 4, start + 400)]
    whole = b"".join(reader.plain_range(0, len(log)))
    assert cache.counts.evictions > 6
    assert whole == log
    assert [bytes(piece) for piece in kept] == [log[start + 4 : start + 400] for start in range(0, len(log), MIB)]
