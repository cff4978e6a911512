"""Python objects made by the hundreds are those that Python would have made, and are freed as soon."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import Batch, record
from tierstate.consumer.tiered_message import BlockMessages
from tierstate.log.decode import decode_records
from tierstate.log.object_kernels import Rows

optional = st.none() | st.binary(max_size=200)


@given(st.lists(st.tuples(optional, optional), min_size=1, max_size=30))
def test_messages_have_the_keys_and_values_of_the_records(records: list[tuple[bytes | None, bytes | None]]) -> None:
    data = Batch(0, [record(delta, key, value) for delta, (key, value) in enumerate(records)]).bytes
    (block,) = decode_records(data, source="f")
    messages = BlockMessages(block, "t", 0).take(30)
    assert [(message.key(), message.value()) for message in messages] == records


class Cell:
    __slots__ = ("after", "number", "shared")
    number: int
    shared: object


class Swapped:
    __slots__ = ("a_number", "z_shared")
    a_number: object
    z_shared: object


@pytest.mark.parametrize("first", [0, 250, 2**31, 2**62])
def test_rows_share_one_object_and_have_their_numbers(first: int) -> None:
    shared = object()
    before = sys.getrefcount(shared)
    cells = Rows(Cell, "shared", "number").made(shared, first, 300)
    assert [cell.number for cell in cells] == list(range(first, first + 300))
    assert all(cell.shared is shared and type(cell) is Cell for cell in cells)
    assert not any(hasattr(cell, "after") for cell in cells)
    assert sys.getrefcount(shared) == before + 300
    assert [sys.getrefcount(cells[at]) for at in range(300)] == [2] * 300  # the list, and the argument
    del cells[1:]
    assert sys.getrefcount(shared) == before + 1
    del cells
    assert sys.getrefcount(shared) == before
    assert Rows(Cell, "shared", "number").made(shared, first, 0) == []


def test_a_slot_is_found_wherever_it_lies() -> None:
    (one,) = Rows(Swapped, "z_shared", "a_number").made("all", 7, 1)
    assert (one.z_shared, one.a_number) == ("all", 7)
    one.z_shared = one.a_number = None
    (other,) = Rows(Swapped, "a_number", "z_shared").made("all", 7, 1)
    assert (other.z_shared, other.a_number) == (7, "all")


def test_pythons_collector_knows_of_no_message() -> None:
    """Otherwise it looks through everything that was imported, again and again, for objects that can be in no cycle."""
    data = Batch(0, [record(delta, None, b"%d" % delta) for delta in range(100)]).bytes
    (block,) = decode_records(data, source="f")
    messages = BlockMessages(block, "t", 0)
    taken = messages.take(70) + messages.take(70)
    assert [message.value() for message in taken] == [b"%d" % number for number in range(100)]
    assert not any(map(gc.is_tracked, taken))
    assert messages.take(1) == []


def test_messages_for_which_there_is_no_memory_are_a_memory_error() -> None:
    program = """
import resource
from tierstate.log.object_kernels import Rows
class Cell:
    __slots__ = ("number", "shared")
rows = Rows(Cell, "shared", "number")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
try:
    rows.made(None, 0, 5_000_000)
except MemoryError:
    print("missed")
print(len(rows.made(None, 0, 10)), rows.made(None, 3, 1)[0].number)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "missed\n10 3\n", done.stderr
