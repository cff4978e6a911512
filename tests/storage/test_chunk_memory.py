"""The memory of chunks that come in pieces: used again, and never while anybody holds a view of it."""

from __future__ import annotations

import threading
import time

import numpy as np

from tierstate.storage.object_store import MIB
from tierstate.storage.segment import buffers
from tierstate.storage.segment.buffers import ChunkMemory, joined, put


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_what_was_forgotten_is_given_to_the_next_of_its_size() -> None:
    memory = ChunkMemory(2)
    first = memory(MIB)
    where = address(first)
    del first
    assert address(memory(MIB)) == where


def test_what_somebody_holds_a_part_of_is_not_written_to() -> None:
    memory = ChunkMemory(2)
    first = memory(MIB)
    put(first, 0, b"kept")
    part = first[:4].toreadonly()
    del first
    put(memory(MIB), 0, b"lost")
    assert bytes(part) == b"kept"


def test_memory_of_another_size_is_not_used() -> None:
    memory = ChunkMemory(2)
    memory(2 * MIB)
    assert len(memory(MIB)) == MIB
    assert len(memory(4 * MIB)) == 4 * MIB


def test_no_more_waits_than_may_and_nothing_of_an_odd_or_large_size() -> None:
    memory = ChunkMemory(2)
    held = [memory(size) for size in (MIB, MIB, MIB, MIB + 1, buffers.LARGEST_CHUNK + MIB)]
    assert not memory._free
    held.clear()
    assert [len(each) for each in memory._free] == [MIB, MIB]


def test_others_run_while_pieces_are_copied() -> None:
    """One that holds the interpreter's lock all the time would let nobody count."""
    large, counted, over = bytes(64 * MIB), [0], threading.Event()

    def count() -> None:
        while not over.is_set():
            counted[0] += 1

    target = memoryview(bytearray(64 * MIB))
    counter = threading.Thread(target=count)
    counter.start()
    try:
        for copied in (lambda: put(target, 0, large), lambda: joined([memoryview(large)])):
            before, began = counted[0], time.thread_time()
            copied()
            assert counted[0] - before > 100, time.thread_time() - began
    finally:
        over.set()
        counter.join()


def test_pieces_in_one_are_theirs_in_order_and_none_are_nothing() -> None:
    assert bytes(joined([b"ab", b"", memoryview(b"xcd")[1:]])) == b"abcd"
    assert bytes(joined([])) == b""
