"""Reading ahead changes nothing but when the work is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tierstate.fetch.read_ahead import read_ahead


def test_pieces_come_in_order_and_an_error_after_those_before_it() -> None:
    def pieces() -> Iterator[int]:
        yield from range(5)
        raise ValueError("the store is gone")

    ahead = read_ahead(pieces(), 2)
    assert [next(ahead) for _ in range(5)] == list(range(5))
    with pytest.raises(ValueError, match="the store is gone"):
        next(ahead)


def test_no_more_than_its_depth_is_made_ahead() -> None:
    numbers: list[int] = []
    waiting = threading.Event()

    def pieces() -> Iterator[int]:
        for number in range(100):
            numbers.append(number)
            if number == 3:
                waiting.set()
            yield number

    ahead = read_ahead(pieces(), 2)
    assert next(ahead) == 0
    assert waiting.wait(10)  # 1 and 2 wait, 3 is being made
    assert len(numbers) <= 4
    ahead.close()


def test_a_taker_who_leaves_ends_the_thread() -> None:
    before = threading.active_count()
    ahead = read_ahead(iter(range(1_000)), 2)
    next(ahead)
    assert threading.active_count() == before + 1
    ahead.close()
    assert threading.active_count() == before
