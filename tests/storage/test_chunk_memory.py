"""The memory of chunks that come in pieces: used again, and never while a view of it is held."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from tierstate.runtime.clock import SystemClock
from tierstate.storage.object_store import MIB
from tierstate.storage.segment import buffers
from tierstate.storage.segment.buffers import ChunkMemory, joined, put


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_freed_memory_is_given_to_the_next_chunk_of_its_size() -> None:
    memory = ChunkMemory(2)
    first = memory(MIB)
    where = address(first)
    del first
    assert address(memory(MIB)) == where


def test_memory_with_a_held_view_is_not_written_to() -> None:
    memory = ChunkMemory(2)
    first = memory(MIB)
    put(first, 0, b"kept")
    part = first[:4].toreadonly()
    del first
    put(memory(MIB), 0, b"lost")
    assert bytes(part) == b"kept"


def test_a_smaller_chunk_does_not_hold_the_memory_of_a_larger_one() -> None:
    memory = ChunkMemory(2)
    where = address(memory(2 * MIB))
    assert address(memory(MIB)) != where


def test_free_memory_is_bounded() -> None:
    memory = ChunkMemory(2)
    held = [memory(MIB) for _ in range(3)]
    held.clear()
    assert len(memory._free) == 2


@pytest.mark.parametrize("size", [MIB + 1, buffers.LARGEST_CHUNK + MIB])
def test_nothing_waits_of_an_odd_size_or_a_very_large_one(size: int) -> None:
    memory = ChunkMemory(2)
    assert len(memory(size)) == size
    assert not memory._free


def test_others_run_while_pieces_are_copied() -> None:
    """If the interpreter's lock were held, no other thread would count."""
    large, counted, over = bytes(64 * MIB), [0], threading.Event()

    def count() -> None:
        while not over.is_set():
            counted[0] += 1
            SystemClock().sleep(0)

    target = memoryview(bytearray(64 * MIB))
    counter = threading.Thread(target=count)
    patience = sys.getswitchinterval()
    sys.setswitchinterval(30)  # the holder of the lock gives it away, or keeps it
    counter.start()
    try:
        for copied in (lambda: put(target, 0, large), lambda: joined([memoryview(large)])):
            before = counted[0]
            copied()
            assert counted[0] - before > 1
    finally:
        over.set()
        counter.join()
        sys.setswitchinterval(patience)


def test_pieces_in_one_are_theirs_in_order_and_none_are_nothing() -> None:
    assert bytes(joined([b"ab", b"", memoryview(b"xcd")[1:]])) == b"abcd"
    assert bytes(joined([])) == b""
