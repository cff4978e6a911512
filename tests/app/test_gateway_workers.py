"""What looks after the workers of a gateway: by real processes, which are less than a gateway, and a clock of ours."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.scenarios.house import eventually
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.gateway_workers import (
    LAST_AGAIN_S,
    SILENT_S,
    GatewayWorker,
    GatewayWorkers,
    WorkerStart,
    divided,
)
from tierstate.follower.asked_view import ViewAnswers
from tierstate.follower.open import open_view
from tierstate.runtime.clock import ManualClock, SystemClock
from tierstate.runtime.logs import open_logs
from tierstate.runtime.service import Service
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidSettings, Unavailable

pytestmark = pytest.mark.extended

BEGINS = """
import os, socket, sys
from contextlib import suppress
from tierstate.app.gateway_workers import WorkerAnswer
from tierstate.runtime.socket_pair import send_message, taken_over
control = socket.socket(fileno=int(sys.argv[1]))
control.recv(1 << 16)
"""
ANSWERS = """
control.send(b"ready")
while (end := taken_over(control)[1]) is not None:
    with end, suppress(OSError):
        send_message(end, WorkerAnswer((), HANGING))
"""
LOOKED_AT = BEGINS + ANSWERS.replace("HANGING", "()")
HANGS = BEGINS + ANSWERS.replace("HANGING", "('a thread hangs. loop=gateway',)")
DIES_WHEN_READY = BEGINS + "control.send(b'ready'); os._exit(3)"
DIES_BEFORE = BEGINS + "os._exit(3)"


class Watched:
    """Workers that run this text each."""

    def __init__(self, *texts: str) -> None:
        self.clock, self.log, self.ready = ManualClock(), io.StringIO(), 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.view = open_view(MemoryTierTopic(1), "cluster", SystemClock())
        self.started: list[GatewayWorker] = []
        self.workers = GatewayWorkers(
            [self._starting(number, text) for number, text in enumerate(texts, 1)],
            ViewAnswers(self.view),
            self.clock,
            open_logs({}, as_json=True, stream=self.log),
            self._on_ready,
            look_s=0.05,
        )
        self.service: Service = self.workers.service()
        self.service.start()

    def _starting(self, number: int, text: str) -> Callable[[], GatewayWorker]:
        def start() -> GatewayWorker:
            given = WorkerStart(number, os.getpid(), Settings(), 1, True, True)
            self.started.append(GatewayWorker([sys.executable, "-c", text], (self.listening.fileno(),), given))
            return self.started[-1]

        return start

    def _on_ready(self) -> None:
        self.ready += 1

    def in_time(self, look: Callable[[], Any]) -> None:
        """The clock goes on until ``look`` is true; else it stands still, and no busy machine takes too long."""

        def later() -> Any:
            self.clock.advance(1.0)
            return look()

        eventually(later, 60)

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    def close(self) -> None:
        self.service.stop()
        self.in_time(lambda: self.service.join(0.1))
        assert all(each.process.returncode is not None for each in self.started), "a worker outlived its end"
        self.view.close()
        self.listening.close()


Watch = Callable[..., Watched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    made: list[Watched] = []

    def begin(*texts: str) -> Watched:
        made.append(Watched(*texts))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_they_are_announced_once_when_all_of_them_answer(watch: Watch) -> None:
    watched = watch(LOOKED_AT, LOOKED_AT)
    assert watched.workers.not_ready()
    eventually(lambda: watched.ready)
    assert watched.workers.not_ready() == []
    os.kill(watched.started[0].process.pid, signal.SIGKILL)
    watched.in_time(lambda: len(watched.started) == 3)
    eventually(lambda: watched.workers.not_ready() == [])
    assert watched.ready == 1


def test_the_worst_of_them_is_what_all_of_them_are(watch: Watch) -> None:
    watched = watch(LOOKED_AT, LOOKED_AT)
    eventually(lambda: watched.ready)
    stopped = watched.started[1].process
    stopped.send_signal(signal.SIGSTOP)
    assert watched.workers.not_ready() == ["worker 2: it does not answer"]
    stopped.send_signal(signal.SIGCONT)
    eventually(lambda: watched.workers.not_ready() == [])


def test_one_that_is_silent_for_too_long_is_ended_and_started_again(watch: Watch) -> None:
    watched = watch(LOOKED_AT)
    eventually(lambda: watched.ready)
    first = watched.started[0].process
    first.send_signal(signal.SIGSTOP)
    watched.clock.advance(SILENT_S - 1)
    for _ in range(2):  # each takes as long as the look that goes on beside it
        assert watched.workers.not_ready() == ["worker 1: it does not answer"]
    assert not watched.said("worker hangs and is ended")
    watched.in_time(lambda: len(watched.started) == 2)
    assert first.returncode in (-signal.SIGABRT, -signal.SIGKILL)


def test_one_whose_loop_hangs_is_aborted_and_started_again(watch: Watch) -> None:
    watched = watch(HANGS)
    watched.in_time(lambda: len(watched.started) > 1)
    assert watched.started[0].process.returncode == -signal.SIGABRT, "it says where each of its threads was"


def test_one_that_dies_again_and_again_is_started_later_and_later(watch: Watch) -> None:
    watched = watch(DIES_WHEN_READY)
    watched.in_time(lambda: len(watched.said("worker ended")) >= 8)
    waits = [line["again_s"] for line in watched.said("worker ended")][:8]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LAST_AGAIN_S, LAST_AGAIN_S]


def test_one_that_cannot_begin_ends_the_gateway_that_never_answered(watch: Watch) -> None:
    watched = watch(LOOKED_AT, DIES_BEFORE)
    eventually(lambda: watched.service.join(0.1))
    assert isinstance(watched.service.failure, Unavailable)
    assert "before it was ready. exit_code=3" in str(watched.service.failure)
    assert watched.ready == 0


def test_each_has_its_part_and_all_of_them_have_no_more_than_was_given() -> None:
    whole = Settings.model_validate(
        {"gateway": {"workers": 3, "memory": "100MiB", "quota": 1000}, "cache": {"memory": "10MiB", "disk": "1GiB"}}
    )
    parts = [divided(whole, number) for number in (1, 2, 3)]
    assert sum(each.gateway.memory for each in parts) <= whole.gateway.memory
    assert sum(each.cache.memory for each in parts) <= whole.cache.memory
    assert sum(each.cache.disk for each in parts) <= whole.cache.disk
    assert len({each.state_dir for each in parts}) == 3
    assert {each.gateway.quota for each in parts} == {334}
    for name in ("connections", "connections_per_address", "local_reads", "remote_reads"):
        count = getattr(whole.gateway, name)
        assert 0 <= sum(getattr(each.gateway, name) for each in parts) - count < 3


def test_parts_that_no_process_can_work_with_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="each of 3 workers needs 16 MiB"):
        divided(Settings.model_validate({"gateway": {"workers": 3, "memory": "40MiB"}}), 1)
