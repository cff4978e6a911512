"""Long ranges are read by several requests at a time; only the time shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial

import pytest

from tests.storage.conftest import BASE_KEY, WriteSegment
from tierstate.state.errors import CorruptData, StorageUnavailable
from tierstate.state.offsets import ByteRange
from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.in_order import Work, in_order
from tierstate.storage.segment.log_chunks import WINDOW_BYTES
from tierstate.storage.segment.reader import SegmentReader

SIZE = 5 * WINDOW_BYTES + 12_345
LOG = b"".join(number.to_bytes(8, "big") * 128 for number in range(-(-SIZE // 1024)))[:SIZE]


class Busy(MemoryStore):
    """A store that counts open requests; a test may hold them."""

    def __init__(self) -> None:
        super().__init__()
        self._count = threading.Condition()
        self.now_open = self.most_open = self.requests = 0
        self.before: Callable[[ByteRange], None] = lambda range: None

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        with self._count:
            self.now_open += 1
            self.requests += 1
            self.most_open = max(self.most_open, self.now_open)
            self._count.notify_all()
        try:
            self.before(range)
            yield from super().stream_range(key, range, piece_bytes)
        finally:
            with self._count:
                self.now_open -= 1

    def wait_for(self, count: int) -> bool:
        with self._count:
            return self._count.wait_for(lambda: self.now_open >= count, 30)


@pytest.fixture(params=["plain", "zstd", "plain, cached", "zstd, cached"])
def segment(request: pytest.FixtureRequest, write_segment: WriteSegment) -> tuple[Busy, SegmentReader]:
    store = Busy()
    compression = Compression.ZSTD if "zstd" in request.param else Compression.NONE
    write_segment(store, LOG, compression=compression, chunk_bytes=MIB)
    cache = ChunkCache(MIB) if "cached" in request.param else None
    return store, SegmentReader.open(store, BASE_KEY, cache=cache)


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


pytestmark = [pytest.mark.usefixtures("no_thread_left"), pytest.mark.extended]


def test_the_log_is_the_same_and_four_requests_are_in_flight(segment: tuple[Busy, SegmentReader]) -> None:
    store, reader = segment
    together = threading.Barrier(4)
    turns = iter([True] * 4 + [False] * 10)

    def wait(range: ByteRange) -> None:
        if next(turns):
            together.wait(30)

    store.before = wait
    assert b"".join(reader.read_log()) == LOG
    assert (store.most_open, store.now_open) == (4, 0)
    assert store.requests == 6


def test_any_range_is_exact(segment: tuple[Busy, SegmentReader]) -> None:
    reader = segment[1]
    for start, stop in ((0, 1), (MIB - 1, MIB + 1), (7, SIZE - 7), (SIZE - 1, SIZE + 100), (WINDOW_BYTES, SIZE)):
        assert b"".join(reader.plain_range(start, stop)) == LOG[start:stop]


def test_an_error_comes_in_its_place_and_stops_the_rest(segment: tuple[Busy, SegmentReader]) -> None:
    store, reader = segment
    middle = reader.manifest.chunks.chunk(20).stored_start

    def fail(range: ByteRange) -> None:
        if range.start <= middle < range.stop:
            raise StorageUnavailable("the store does not answer")

    store.before = fail
    got = bytearray()
    with pytest.raises(StorageUnavailable):
        collect(reader, got)
    assert got == LOG[: 2 * WINDOW_BYTES]
    assert store.now_open == 0


def test_an_object_that_is_too_short_is_corrupt_never_a_short_read(segment: tuple[Busy, SegmentReader]) -> None:
    store, reader = segment
    data = store.get(BASE_KEY + ".log")
    cut = reader.manifest.chunks.chunk(33).stored_start + 5
    store.delete(BASE_KEY + ".log")
    store.put_if_absent(BASE_KEY + ".log", data[:cut])
    got = bytearray()
    with pytest.raises(CorruptData, match="shorter than its manifest says") as short:
        collect(reader, got)
    assert short.value.facts["file"] == BASE_KEY + ".log"
    assert short.value.facts["chunk"] == 33
    assert LOG.startswith(got)


def collect(reader: SegmentReader, into: bytearray) -> None:
    for piece in reader.read_log():
        into += piece


def test_who_leaves_early_leaves_no_request_open(segment: tuple[Busy, SegmentReader]) -> None:
    store, reader = segment
    held = threading.Event()
    first = iter([True])

    def hold(range: ByteRange) -> None:
        if not next(first, False):
            held.wait(30)

    store.before = hold
    pieces = reader.read_log()
    assert next(pieces)[:1] == LOG[:1]
    assert store.wait_for(4)
    threading.Timer(0.05, held.set).start()
    assert isinstance(pieces, Generator)
    pieces.close()
    assert store.now_open == 0
    assert store.requests <= 5


def test_work_is_done_a_few_at_a_time_and_no_further_ahead() -> None:
    begun: list[int] = []

    def work(number: int, left: threading.Event) -> int:
        begun.append(number)
        return number

    todo: Iterator[Work[int]] = (partial(work, number) for number in range(100))
    results = in_order(todo, 4)
    for number in range(10):
        assert next(results) == number
        assert max(begun) <= number + 4  # four done or in progress, one in our hands
    results.close()
    assert max(begun) <= 13


def test_one_at_a_time_needs_no_thread() -> None:
    here = threading.get_ident()
    work: list[Work[bool]] = [lambda left: threading.get_ident() == here] * 3
    assert list(in_order(work, 1)) == [True] * 3
    assert list(in_order(work[:1], 4)) == [True]
    assert list(in_order([], 4)) == []
