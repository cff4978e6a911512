"""The chunk cache: bounded, and one load a chunk."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tierstate.state.errors import StorageUnavailable
from tierstate.storage.segment.cache import ChunkCache


def test_everyone_who_asks_at_once_shares_one_load() -> None:
    cache, loads = ChunkCache(100), [0]
    started, asking, go_on = threading.Event(), threading.Semaphore(0), threading.Event()

    def load() -> bytes:
        loads[0] += 1
        started.set()
        go_on.wait(30)
        return b"chunk"

    def ask() -> bytes:
        asking.release()
        return cache.get("key", 0, load)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask)
        started.wait(30)
        others = [pool.submit(ask) for _ in range(7)]
        for _ in range(8):
            asking.acquire()
        go_on.set()
        assert {first.result(), *(each.result() for each in others)} == {b"chunk"}
    assert loads == [1]


def test_it_never_holds_more_than_its_bytes_and_drops_the_least_recently_used() -> None:
    cache = ChunkCache(100)
    for id in (0, 1, 0, 2):
        cache.get("key", id, lambda: bytes(40))
    assert cache.bytes_held == 80
    hits = cache.hits
    cache.get("key", 0, lambda: bytes(40))
    assert cache.hits == hits + 1
    misses = cache.misses
    cache.get("key", 1, lambda: bytes(40))
    assert cache.misses == misses + 1


def test_a_chunk_larger_than_the_cache_is_handed_out_and_not_kept() -> None:
    cache = ChunkCache(10)
    assert cache.get("key", 0, lambda: bytes(11)) == bytes(11)
    assert cache.bytes_held == 0


def test_a_failed_load_is_not_kept() -> None:
    cache = ChunkCache(10)

    def failing() -> bytes:
        raise StorageUnavailable("the store does not answer")

    with pytest.raises(StorageUnavailable):
        cache.get("key", 0, failing)
    assert cache.get("key", 0, lambda: b"x") == b"x"


def test_an_interrupted_load_is_taken_over_by_who_waits() -> None:
    cache, started, go_on = ChunkCache(10), threading.Event(), threading.Event()

    def interrupted() -> bytes:
        started.set()
        go_on.wait(30)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get("key", 0, interrupted)

    with ThreadPoolExecutor(2) as pool:
        loading = pool.submit(first)
        started.wait(30)
        waiting = pool.submit(cache.get, "key", 0, lambda: b"x")
        go_on.set()
        assert waiting.result(30) == b"x"
        loading.result(30)
