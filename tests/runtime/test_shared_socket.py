"""Two processes accept at one socket: the one with fewer connections takes the next; a sleeping one blocks none."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tierstate.runtime.shared_socket import LEAVES_S, SETTLES_S, SharedSocket, shared_counts


class Two:
    """Two acceptors of one socket, and their clients."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self.listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        counts = shared_counts(2)
        self.open = [0, 0]
        self.both = [SharedSocket(fileno=os.dup(self.listening.fileno())) for _ in range(2)]
        for place, each in enumerate(self.both):
            opened.enter_context(each).setblocking(False)
            each.share(counts, place, lambda place=place: self.open[place])  # type: ignore[misc]

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._opened.enter_context(socket.create_connection(self.listening.getsockname()))

    def takes(self, which: int) -> bool:
        try:
            self._opened.enter_context(self.both[which].accept()[0])
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as opened:
        yield Two(opened)


def test_each_takes_one_in_turn_of_those_that_wait(two: Two) -> None:
    two.connect(6)
    assert [two.takes(0), two.takes(0), two.takes(1), two.takes(1), two.takes(0)] == [True, False, True, True, True]


def test_a_connection_that_no_other_takes_is_taken_a_moment_later(two: Two) -> None:
    two.connect(2)
    assert two.takes(0)
    assert not two.takes(0)
    time.sleep(LEAVES_S)
    assert two.takes(0)


def test_open_connections_count_whatever_their_age(two: Two) -> None:
    two.open[0] = 5
    two.connect(3)
    time.sleep(SETTLES_S)
    two.takes(1)
    assert not two.takes(0)
    assert two.takes(1)
