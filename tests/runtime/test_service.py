from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tierstate.runtime.service import Service, run_services
from tierstate.state.errors import CorruptData, TimedOut


def until_stopped(stopping: threading.Event) -> None:
    stopping.wait()


def signal_us(number: signal.Signals) -> Service:
    def work(stopping: threading.Event) -> None:
        os.kill(os.getpid(), number)
        stopping.wait()

    return Service("signaller", work)


def test_a_failed_service_stops_the_others_and_its_error_is_raised() -> None:
    def fail(stopping: threading.Event) -> None:
        raise CorruptData("batch CRC does not match")

    other = Service("other", until_stopped)
    with pytest.raises(CorruptData):
        run_services([other, Service("failing", fail)])
    assert other.join(0)


def test_the_end_of_one_service_is_the_end_of_all() -> None:
    other = Service("other", until_stopped)
    run_services([other, Service("once", lambda stopping: None)])
    assert other.join(0)


def test_services_stop_in_reverse_order() -> None:
    order: list[str] = []

    def named(name: str) -> Service:
        def work(stopping: threading.Event) -> None:
            stopping.wait()
            order.append(name)

        return Service(name, work)

    run_services([named("first"), named("second"), signal_us(signal.SIGTERM)])
    assert order == ["second", "first"]


def test_sigint_stops_everything_then_interrupts_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    other = Service("other", until_stopped)
    with pytest.raises(KeyboardInterrupt):
        run_services([other, signal_us(signal.SIGINT)])
    assert other.join(0)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_service_that_does_not_stop_is_named_and_does_not_hold_the_process() -> None:
    never = threading.Event()
    with pytest.raises(TimedOut, match="stuck"):
        run_services(
            [Service("stuck", lambda stopping: void(never.wait())), Service("once", lambda stopping: None)],
            stop_seconds=0.05,
        )
    never.set()


def void(value: object) -> None:
    """A wait without its answer."""


def test_work_that_cannot_wait_on_an_event_is_woken() -> None:
    woken = threading.Event()
    service = Service("server", lambda stopping: void(woken.wait()), on_stop=woken.set)
    service.start()
    service.stop()
    service.stop()
    assert service.join(10)


def test_stopping_what_never_started_is_harmless() -> None:
    service = Service("idle", until_stopped)
    service.stop()
    assert service.join(0)


def test_a_second_signal_ends_a_process_that_will_not_stop() -> None:
    code = (
        "import os, signal, threading\n"
        "from tierstate.runtime.service import Service, run_services\n"
        "def stubborn(stopping):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    stopping.wait()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    threading.Event().wait()\n"
        "run_services([Service('stubborn', stubborn)])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -signal.SIGTERM
