"""A broker of a sandbox that is stopped by SIGSTOP, and lives on."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import TimedOut

STOP_SECONDS = 20.0


def freeze(kafka: KafkaSandbox, index: int) -> None:
    """Stop a broker with SIGSTOP, and wait until no thread runs: on a busy machine, some run for a moment longer.

    Raises TimedOut after ``STOP_SECONDS``.
    """
    broker = kafka.brokers[index]
    broker.signal(signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS
    while not all(state == "T" for state in _thread_states(broker.pid)):
        if time.monotonic() > deadline:
            raise TimedOut("a broker does not stop", broker=broker.address.node_id)
        time.sleep(0.01)


def thaw(kafka: KafkaSandbox, index: int) -> None:
    kafka.brokers[index].signal(signal.SIGCONT)


def _thread_states(pid: int | None) -> list[str]:
    states = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # the thread ended
            states.append((thread / "stat").read_text().rpartition(") ")[2][0])
    return states
