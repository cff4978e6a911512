"""A folder reads into the caller's memory: the same bytes and errors as any range of it."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from mmap import PAGESIZE, PROT_READ, mmap
from pathlib import Path

import numpy as np
import pytest

from tests.scenarios.house import eventually
from tierstate.state.errors import ObjectNotFound
from tierstate.state.offsets import ByteRange
from tierstate.storage.directory import AHEAD_BYTES, DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB, RangeNotSatisfiable
from tierstate.storage.segment.log_chunks import NearStore

DATA = bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent("a/b", DATA)
    return store


def test_it_is_what_a_range_is_and_nothing_else_is_touched(store: DirectoryStore) -> None:
    for start, size in ((0, 1), (0, len(DATA)), (7, 300), (len(DATA) - 1, 1), (len(DATA) - 5, 100), (0, 2 * len(DATA))):
        target = bytearray(b"-" * size)
        length = store.read_into("a/b", start, memoryview(target))
        expected = store.get_range("a/b", ByteRange(start, start + size))
        assert target == expected + b"-" * (size - len(expected))
        assert length == len(expected)


def test_a_missing_object_is_an_error(store: DirectoryStore) -> None:
    with pytest.raises(RangeNotSatisfiable):
        store.read_into("a/b", len(DATA), memoryview(bytearray(1)))
    with pytest.raises(ObjectNotFound):
        store.read_into("a/c", 0, memoryview(bytearray(1)))


def test_the_following_bytes_are_read_ahead_into_the_page_cache(store: DirectoryStore, tmp_path: Path) -> None:
    store.put_if_absent("large", bytes(3 * AHEAD_BYTES))
    with (tmp_path / "store" / "large").open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as mapped:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        address, pages = np.frombuffer(mapped, np.uint8).ctypes.data, (ctypes.c_ubyte * (MIB // PAGESIZE))()

        def cached(position: int) -> bool:
            assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address + position), MIB, pages) == 0
            return all(page & 1 for page in pages)

        if cached(0):
            pytest.skip("this file system has nothing but memory")
        target = memoryview(bytearray(MIB))
        for start in (0, AHEAD_BYTES):
            assert not cached(start + AHEAD_BYTES)
            assert store.read_into("large", start, target) == MIB
            eventually(partial(cached, start + AHEAD_BYTES), 10)


def test_only_a_folder_is_near(store: DirectoryStore) -> None:
    assert isinstance(store, NearStore)
    assert not isinstance(MemoryStore(), NearStore)
