"""Loading ahead: a sequential reader finds its bytes in memory, and sees no other difference."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden, golden_rows, rows_of
from tierstate.fetch import prefetch
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import StorageUnavailable
from tierstate.state.object_keys import ObjectKind
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import Compression
from tierstate.storage.segment.cache import ChunkCache

Make = Callable[..., Golden]
CHUNK = 4096
BUDGET = 4 * CHUNK


@pytest.fixture
def log(golden_log: Make) -> Golden:
    golden = golden_log("none", prefetch=BUDGET)
    golden.local.local_start = golden.folder.bases[-1]
    golden.reader.bounds("t", 0)
    return golden


def settle(golden: Golden) -> None:
    """Wait until nothing is being loaded ahead."""
    clock = SystemClock()
    while not golden.remote.prefetch.idle:
        clock.sleep(0.001)


def fetch(golden: Golden, offset: int, max_bytes: int = 1000) -> int:
    """Read a piece, and return where the next read begins."""
    return golden.reader.fetch("t", 0, offset, max_bytes=max_bytes).next_offset


def gets(golden: Golden) -> list[str]:
    """Return the keys that were read from the store since the last call."""
    keys = [event.object_key for event in golden.fetched]
    golden.fetched.clear()
    return keys


def test_a_sequential_reader_finds_its_next_bytes_loaded(log: Golden) -> None:
    offset = fetch(log, 0)
    assert log.remote.prefetch.bytes == 0
    offset = fetch(log, offset)
    settle(log)
    assert log.remote.prefetch.bytes == BUDGET
    while offset < log.folder.bases[1] // 5:
        misses = log.remote.cache.counts.misses
        offset = fetch(log, offset)
        settle(log)
        assert log.remote.cache.counts.misses == misses


def test_it_goes_on_into_the_next_segments(log: Golden) -> None:
    border = log.folder.bases[1]
    offset = fetch(log, border - 200)
    while offset < border:
        offset = fetch(log, offset)
        settle(log)
    ahead = [key for key in gets(log) if key.startswith(log.segments[1].object_key)]
    assert [key.rpartition(".")[2] for key in ahead][:2] == ["rsm-manifest", "log"]
    misses = log.remote.cache.counts.misses
    assert fetch(log, offset) > border
    assert log.remote.cache.counts.misses == misses


def test_a_whole_scan_is_the_same_and_no_chunk_is_loaded_twice(log: Golden) -> None:
    pieces = log.reader.scan("t", 0, 0, log.folder.bases[-1], piece_bytes=3000)
    expected = [row for row in golden_rows("none", Isolation.READ_COMMITTED) if row[0] < log.folder.bases[-1]]
    assert rows_of(pieces) == expected
    settle(log)
    logs = [event.bytes for event in log.fetched if event.object_key.endswith(ObjectKind.LOG)]
    assert sum(logs) == sum(segment.log_object_bytes for segment in log.segments)
    assert log.remote.prefetch.failures == 0


def test_a_request_ahead_is_of_half_the_budget_or_ends_a_segment(golden_log: Make) -> None:
    log = golden_log("none", prefetch=BUDGET, compression=Compression.NONE)
    log.local.local_start = log.folder.bases[-1]
    offset = 0
    while offset < log.folder.bases[2]:
        offset = fetch(log, offset)
        settle(log)
    second = log.segments[1]
    sizes = [event.bytes for event in log.fetched if event.object_key == second.object_key + ".log"]
    # the last batch begins in the chunk before the last, which the reader therefore loads by itself
    assert sizes == [BUDGET // 2] * 7 + [CHUNK, second.log_bytes % CHUNK]


def test_the_same_threads_load_what_comes_next_and_end_with_the_reader(
    log: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "LINGER_S", 3600.0)
    before = loading()
    offset = fetch(log, fetch(log, 0))
    settle(log)
    first = loading() - before
    while offset < log.folder.bases[2]:
        offset = fetch(log, offset)
        settle(log)
    threads = loading() - before
    assert first <= threads
    assert 0 < len(threads) <= prefetch.THREADS
    log.reader.close()
    for thread in threads:
        thread.join(30)
    assert not threads & loading()


def test_a_thread_ends_when_nothing_comes(log: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "LINGER_S", 0.05)
    before = loading()
    offset = fetch(log, fetch(log, 0))
    for thread in loading() - before:
        thread.join(30)
    assert not loading() - before
    loaded = log.remote.prefetch.bytes
    while log.remote.prefetch.bytes == loaded:  # by another one
        offset = fetch(log, offset)
        settle(log)
        assert offset < log.folder.bases[1]


def loading() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "prefetch"}


def test_point_reads_load_nothing_ahead(log: Golden) -> None:
    for offset in (0, 700, 40, 950, 300, 41):
        fetch(log, offset)
    settle(log)
    assert log.remote.prefetch.bytes == 0


def test_without_a_budget_nothing_is_loaded_ahead(golden_log: Make) -> None:
    golden = golden_log("none")
    golden.local.local_start = golden.folder.bases[-1]
    for _ in golden.reader.scan("t", 0, 0, golden.folder.bases[2]):
        pass
    assert golden.remote.prefetch.idle
    assert golden.remote.prefetch.bytes == 0


def test_nothing_is_loaded_past_the_end_of_a_scan(log: Golden) -> None:
    end = log.folder.bases[1]
    for _ in log.reader.scan("t", 0, 0, end, piece_bytes=1000):
        pass
    settle(log)
    assert {key.rpartition(".")[0] for key in gets(log)} == {log.segments[0].object_key}
    for _ in log.reader.scan("t", 0, end, end + 60, piece_bytes=1000):
        pass
    settle(log)
    reader = log.remote.open(log.segments[1])
    chunk = reader.chunk_for_offset(end + 59)
    assert chunk is not None
    assert not log.remote.cache.knows(reader.log.key, chunk + 2)


def test_nothing_is_loaded_that_the_broker_has(golden_log: Make) -> None:
    golden = golden_log("none", prefetch=BUDGET)
    golden.local.local_start = golden.folder.bases[1]
    for _ in golden.reader.scan("t", 0, 0, golden.folder.bases[2], piece_bytes=1000):
        pass
    settle(golden)
    assert {key.rpartition(".")[0] for key in gets(golden)} == {golden.segments[0].object_key}


def test_its_errors_are_counted_and_the_reader_never_sees_them(log: Golden) -> None:
    """The object is away while it is loaded ahead, and back when the reader comes there."""
    manifest = log.segments[1].object_key + ".rsm-manifest"
    away = log.tiers.store.get(manifest)
    log.tiers.store.delete(manifest)
    border = log.folder.bases[1]
    offset = fetch(log, border - 200)
    while offset < border:
        offset = fetch(log, offset)
        settle(log)
    assert log.remote.prefetch.failures > 0
    log.tiers.store.put_if_absent(manifest, away)
    assert fetch(log, offset) > border


def test_a_reader_waits_for_no_load_ahead_that_only_waits(log: Golden) -> None:
    """Both threads hang in the store; the reader loads by itself what they have not begun."""
    hang, hanging = threading.Event(), threading.Semaphore(0)

    def hold(key: str) -> None:
        if threading.current_thread().name == "prefetch":
            hanging.release()
            hang.wait(30)
        else:
            log.gets.append(hold)

    offset = fetch(log, 0, 5 * CHUNK)
    log.gets += [hold] * 50
    offset = fetch(log, offset, 5 * CHUNK)
    assert hanging.acquire(timeout=30)
    assert fetch(log, 800) > 800
    log.remote.close()  # returns at once, with the load still hanging
    assert not log.remote.prefetch.idle
    log.gets.clear()
    hang.set()
    settle(log)
    assert fetch(log, offset) > offset


def test_a_load_that_fails_is_done_by_the_reader_that_waits_for_it(log: Golden) -> None:
    failed = threading.Event()

    def fail(key: str) -> None:
        if threading.current_thread().name == "prefetch":
            failed.set()
            raise StorageUnavailable("the store does not answer")
        log.gets.append(fail)

    offset = fetch(log, 0)
    log.gets += [fail] * 200
    for _ in range(20):
        offset = fetch(log, offset)
    settle(log)
    assert failed.is_set()
    assert log.remote.prefetch.failures > 0
    assert log.remote.prefetch.bytes == 0


def test_no_more_is_loaded_ahead_than_half_of_the_cache_holds(golden_log: Make) -> None:
    """Readers that came and left must not push each other's chunks out of the cache."""
    golden = golden_log("none", prefetch=BUDGET)
    golden.local.local_start = golden.folder.bases[-1]
    cache = golden.remote.cache = golden.remote.prefetch._cache = ChunkCache(6 * CHUNK)
    golden.remote.prefetch._limit = cache.max_bytes // 2
    for base in golden.folder.bases[:-1]:
        fetch(golden, fetch(golden, base))
        settle(golden)
        assert cache.unused_bytes <= cache.max_bytes // 2


def test_a_range_that_ends_inside_the_log_is_planned_with_what_follows(log: Golden) -> None:
    """A split of several segments, read without a view."""
    from tierstate.fetch.plan import plan
    from tierstate.fetch.split import read_split

    end = Offset(log.folder.bases[-1])
    (split,) = plan(log.reader, {("t", 0): (Offset(0), end)}, tier=Tier.REMOTE)
    assert len(split.parts) > 2
    pieces = read_split(split, log.tiers.store, None, piece_bytes=3000)
    expected = [row for row in golden_rows("none", Isolation.READ_COMMITTED) if row[0] < end]
    assert rows_of(pieces) == expected
