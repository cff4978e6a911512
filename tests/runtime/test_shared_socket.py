"""Of two who accept at one socket the one with fewer connections takes the next; one that sleeps holds up nobody.

A turn of a loop takes few of many, and more where turns are long.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tierstate.runtime.shared_socket import (
    A_TURN,
    LEAVES_S,
    ONE_MORE_S,
    SETTLES_S,
    AdmittingSocket,
    SharedSocket,
    shared_counts,
)


def accepted(listening: AdmittingSocket, opened: ExitStack) -> int:
    """Until it is refused, as a loop does in a turn."""
    taken = 0
    with suppress(BlockingIOError):
        while True:
            opened.enter_context(listening.accept()[0])
            taken += 1
    return taken


class Two:
    """Who accept, and clients."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self.listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        counts = shared_counts(2)
        self.open = [0, 0]
        self.both = [SharedSocket(fileno=os.dup(self.listening.fileno())) for _ in range(2)]
        for place, each in enumerate(self.both):
            opened.enter_context(each).setblocking(False)
            each.admit = lambda accepted, peer: True
            each.share(counts, place, lambda place=place: self.open[place])  # type: ignore[misc]

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._opened.enter_context(socket.create_connection(self.listening.getsockname()))

    def takes(self, which: int) -> bool:
        """In a turn of its own."""
        return accepted(self.both[which], self._opened) == 1


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as opened:
        yield Two(opened)


def test_each_takes_one_in_turn_of_those_that_wait(two: Two) -> None:
    two.connect(6)
    assert [two.takes(0), two.takes(0), two.takes(1), two.takes(1), two.takes(0)] == [True, False, True, True, True]


def test_what_nobody_else_takes_is_taken_a_moment_later(two: Two) -> None:
    two.connect(2)
    assert two.takes(0)
    assert not two.takes(0)
    time.sleep(LEAVES_S)
    assert two.takes(0)


def test_what_is_open_counts_however_long_ago_it_was_taken(two: Two) -> None:
    two.open[0] = 5
    two.connect(3)
    time.sleep(SETTLES_S)
    two.takes(1)
    assert not two.takes(0)
    assert two.takes(1)


class Alone:
    """Who accepts, and clients."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self._at = listening.getsockname()
        self.socket = opened.enter_context(AdmittingSocket(fileno=os.dup(listening.fileno())))
        self.socket.setblocking(False)
        self.socket.admit = lambda accepted, peer: True

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._opened.enter_context(socket.create_connection(self._at))

    def turn(self) -> int:
        return accepted(self.socket, self._opened)


@pytest.fixture
def alone() -> Iterator[Alone]:
    with ExitStack() as opened:
        yield Alone(opened)


def test_a_short_turn_takes_few_of_many(alone: Alone) -> None:
    alone.connect(3 * A_TURN)
    assert [alone.turn() for _ in range(4)] == [A_TURN, A_TURN, A_TURN, 0]


def test_who_connects_while_turns_are_long_waits_for_one_of_them(alone: Alone) -> None:
    alone.connect(40)
    assert alone.turn() == A_TURN
    time.sleep(40 * ONE_MORE_S)  # answers are sent
    assert alone.turn() == 40 - A_TURN


def test_a_time_without_connections_is_no_long_turn(alone: Alone) -> None:
    alone.connect(1)
    assert alone.turn() == 1
    time.sleep(40 * ONE_MORE_S)
    alone.connect(40)
    assert alone.turn() == A_TURN


def test_one_that_may_not_stay_ends_the_turn_and_those_behind_it_come_in_the_next(alone: Alone) -> None:
    alone.connect(2)
    alone.socket.admit = lambda accepted, peer: False
    assert alone.turn() == 0
    alone.socket.admit = lambda accepted, peer: True
    assert alone.turn() == 1
