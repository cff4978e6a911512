from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

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


def test_a_service_that_hangs_does_not_delay_the_stop_of_earlier_ones() -> None:
    """Here it hangs until one of them is stopped."""
    stopped = threading.Event()

    def listening(stopping: threading.Event) -> None:
        stopping.wait()
        stopped.set()

    hanging = Service("hanging", lambda stopping: void(stopped.wait()))
    run_services([Service("listening", listening), hanging, Service("once", lambda stopping: None)], 10.0)


def test_the_stop_hook_runs_before_any_service_is_stopped() -> None:
    order: list[str] = []

    def work(stopping: threading.Event) -> None:
        stopping.wait()
        order.append("stopped")

    run_services([Service("working", work), signal_us(signal.SIGTERM)], on_stop=lambda: order.append("told"))
    assert order == ["told", "stopped"]


def test_a_service_says_how_it_ended_and_nothing_while_it_works() -> None:
    def fail(stopping: threading.Event) -> None:
        raise CorruptData("batch CRC does not match")

    working, failing, done = (
        Service("working", until_stopped),
        Service("failing", fail),
        Service("done", lambda stopping: None),
    )
    for service in (working, failing, done):
        assert service.ended is None, "not begun"
        service.start()
    assert failing.join(10)
    assert done.join(10)
    assert (working.ended, done.ended) == (None, "service done ended")
    assert "batch CRC" in str(failing.ended)
    working.stop()


def void(value: object) -> None:
    """Discard ``value``, so that a lambda returns None."""


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


@pytest.mark.timeout(20)  # the guard: without it the test does not end
def test_a_signal_that_another_thread_receives_stops_everything() -> None:
    """The system chooses the thread; a waiting thread is woken only by its own signal."""

    def told(stopping: threading.Event) -> None:
        time.sleep(0.2)  # by then the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        stopping.wait()

    services = [Service("told", told), Service("waits", until_stopped)]
    run_services(services)
    assert [service.ended for service in services] == ["service told ended", "service waits ended"]


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


AT_EVERY_LINE = """
import os, signal, sys, threading
from tierstate.runtime.service import Service, run_services

def run(at):
    '''Whether SIGTERM came at the ``at``-th line that the main thread ran; else it waits already, and gets it then.'''
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if event == "line" and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            lines += 1
            if lines == at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace

    def work(stop):
        if not stop.wait(0.3):
            os.kill(os.getpid(), signal.SIGTERM)
            stop.wait()

    service = Service("waiting", work)
    sys.settrace(trace)
    try:
        run_services([service])
    finally:
        sys.settrace(None)
    assert service.join(0)
    return lines >= at

at = 1
while run(at):
    at += 1
print(at)
"""


def test_a_signal_at_whatever_line_of_the_main_thread_stops_everything() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EVERY_LINE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
