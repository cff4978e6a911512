"""The supervisor is notified, as `sd_notify(3)` defines, that the process runs and does not hang; a hang is logged."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.runtime.watchdog import Supervisor, Watchdog, alive, inherited, loop

Line = tuple[str, dict[str, object]]


class World:
    """A process with one loop, and a supervisor at ``address`` whose messages `heard` returns."""

    def __init__(self, address: str) -> None:
        self.clock, self.lines = ManualClock(), list[Line]()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(10)
        self.watchdog = Watchdog(self.clock, {"chores": 60}, Supervisor({"NOTIFY_SOCKET": address}), self.warn)

    def warn(self, event: str, **facts: object) -> None:
        self.lines.append((event, facts))

    def heard(self) -> str:
        return self.socket.recv(100).decode()

    def silence(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(100)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(10)
        return False


@pytest.fixture(params=["a file", "abstract"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    new_world = World(str(tmp_path / "notify") if request.param == "a file" else f"@{tmp_path}/notify")
    with new_world.watchdog:
        assert [new_world.heard(), new_world.heard()] == ["READY=1", "WATCHDOG=1"]
        yield new_world
    new_world.socket.close()


def test_it_says_that_the_process_is_ready_and_then_again_and_again_that_nothing_hangs(world: World) -> None:
    for _ in range(3):
        world.watchdog.look()
        assert world.heard() == "WATCHDOG=1"


def test_it_is_silent_while_a_thread_hangs_and_speaks_again_when_that_goes_on(world: World) -> None:
    with loop("chores"):
        world.clock.advance(60)
        world.watchdog.look()
        assert world.silence()
        alive()
        world.watchdog.look()
        assert world.heard() == "WATCHDOG=1"


def test_people_hear_of_a_hang_once_and_where_it_is_and_once_that_it_is_over(world: World) -> None:
    held, release = threading.Event(), threading.Event()

    def hang() -> None:
        with loop("chores", "archive"):
            held.set()
            release.wait(30)

    thread = threading.Thread(target=inherited(hang))
    thread.start()
    assert held.wait(10)
    world.clock.advance(61)
    world.watchdog.look()
    world.watchdog.look()
    ((event, facts),) = world.lines
    assert event == "a thread hangs"
    assert (facts["loop"], facts["doing"], facts["seconds"]) == ("chores", "archive", 61)
    where = str(facts["where"])
    assert where.index("test_watchdog.py") < where.rindex("threading.py"), "the innermost call last"
    release.set()
    thread.join()
    world.watchdog.look()
    assert [event for event, _ in world.lines] == ["a thread hangs", "a thread that hung goes on"]


def test_a_process_without_a_supervisor_and_one_whose_supervisor_is_gone_go_on(world: World, tmp_path: Path) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        Supervisor(environment).tell("READY=1")
    assert world.silence()
