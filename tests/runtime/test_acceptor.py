"""An iteration of a loop accepts few of many clients, more if iterations are long; a flood gets a tenth of its time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tierstate.runtime.acceptor import A_FEW, A_TURN, ONE_MORE_S, RETRY_S, Acceptor
from tierstate.runtime.clock import ManualClock

REFUSED_S = 0.001
"""The time that a refusal takes, by the clock of these tests."""


class Exhausted(socket.socket):
    """A listening socket of a process that once has no descriptor left."""

    left = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if self.left:
            return super().accept()
        self.left += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Door:
    """An acceptor in a running loop, and its clients."""

    def __init__(self, opened: ExitStack, kind: type[socket.socket] = socket.socket) -> None:
        self._opened, self.clock = opened, ManualClock()
        made = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.listening = opened.enter_context(kind(fileno=made.detach()))
        self.begun = 0
        self.refused = list[float]()
        """The times of refusals, by the loop's time."""
        self.room = 1_000
        self.answers_s = 0.0
        """The time that other work takes in each iteration of the loop."""
        self.acceptor = Acceptor(self.listening, self._admit, self._begin, self.clock)

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._opened.enter_context(socket.create_connection(self.listening.getsockname()))

    def run(self, done: Callable[[], bool], rest_s: float = 0.0) -> list[int]:
        """Return how many clients began in each iteration of the loop, until ``done``; then it rests."""
        turns = list[int]()

        async def turning() -> None:
            self.acceptor.open()
            patience = asyncio.get_running_loop().time() + 20
            while not done():
                assert asyncio.get_running_loop().time() < patience
                before = self.begun
                self.clock.advance(self.answers_s)
                await asyncio.sleep(0)
                turns.append(self.begun - before)
            self.acceptor.close()
            await asyncio.sleep(rest_s)

        asyncio.run(turning())
        return turns

    def _admit(self, accepted: socket.socket, peer: Any) -> bool:
        if self.begun < self.room:
            return True
        self.refused.append(asyncio.get_running_loop().time())
        self.clock.advance(REFUSED_S)
        return False

    def _begin(self, accepted: socket.socket, peer: Any) -> None:
        self._opened.enter_context(accepted)
        self.begun += 1


@pytest.fixture
def door() -> Iterator[Door]:
    with ExitStack() as opened:
        yield Door(opened)


def test_a_short_turn_takes_few_of_many(door: Door) -> None:
    door.connect(20)
    assert max(door.run(lambda: door.begun == 20)) == A_TURN


def test_clients_wait_for_few_iterations_even_if_these_are_long(door: Door) -> None:
    door.connect(100)
    door.answers_s = 20.5 * ONE_MORE_S
    taken = [each for each in door.run(lambda: door.begun == 100) if each]
    assert taken[:2] == [A_TURN, 20]
    assert len(taken) == 6


def test_a_time_without_connections_is_no_long_turn(door: Door) -> None:
    door.connect(1)
    door.run(lambda: door.begun == 1)
    door.clock.advance(40 * ONE_MORE_S)
    door.connect(40)
    assert max(door.run(lambda: door.begun == 41)) == A_TURN


def test_after_a_few_that_may_not_stay_it_rests_for_nine_times_as_long_as_they_took(door: Door) -> None:
    door.room = 0
    door.connect(3 * A_FEW)
    door.run(lambda: len(door.refused) == 3 * A_FEW)
    for last, following in ((A_FEW - 1, A_FEW), (2 * A_FEW - 1, 2 * A_FEW)):
        assert door.refused[following] - door.refused[last] >= 0.99 * 9 * A_FEW * REFUSED_S


def test_those_behind_a_flood_get_their_turn(door: Door) -> None:
    door.room = 0
    door.connect(3 * A_FEW)
    door.run(lambda: len(door.refused) == 2 * A_FEW)
    door.room = 1_000
    door.run(lambda: door.begun == A_FEW)


def test_an_acceptor_that_is_closed_while_it_rests_accepts_no_client(door: Door) -> None:
    door.room = 0
    door.connect(2 * A_FEW)
    door.run(lambda: len(door.refused) == A_FEW, rest_s=2 * 9 * A_FEW * REFUSED_S)
    assert len(door.refused) == A_FEW


def test_without_a_descriptor_left_it_warns_and_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        door = Door(opened, Exhausted)
        door.connect(1)
        before = time.monotonic()
        door.run(lambda: door.begun == 1)
        assert time.monotonic() - before >= 0.99 * RETRY_S
    assert "Too many open files" in caplog.text
