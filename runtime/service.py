"""Run a process as services. Each service is one thread, which is started, requested to stop, and joined.

    run_services([tail, agent, management])   # until SIGINT, SIGTERM, or one of them ends

If one service fails, all are stopped and the process ends: an incomplete agent is worse than none. A supervisor
restarts the process.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from ..state.errors import TimedOut
from .watchdog import inherited

STOP_SECONDS = 8.0
"""Seconds in which all services together must return after the stop request. A process must end within 10 s."""
TURN_SECONDS = 1.0
"""Most seconds by which one service delays the stop of the services that were started before it."""


_ENDS = (b"\0", bytes([signal.SIGINT]), bytes([signal.SIGTERM]))
"""Bytes that end the wait of the main thread; other signals do not."""


class _Over:
    """Wakes the main thread at a signal or at the end of a service. Any thread may call `tell` at any time."""

    def __init__(self) -> None:
        self._hears, self._tells = socket.socketpair()
        self._tells.setblocking(False)

    def tell(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is full, or the wait is over
            self._tells.send(b"\0")

    def wait(self) -> None:
        while self._hears.recv(1) not in _ENDS:
            pass  # a signal that other code handles

    def fileno(self) -> int:
        return self._tells.fileno()

    def close(self) -> None:
        self._hears.close()
        self._tells.close()


class Service:
    """One thread that runs ``work``, which must return once the event that it gets is set. ``on_stop`` wakes work that
    cannot wait for an event, for example a server's loop."""

    def __init__(
        self, name: str, work: Callable[[threading.Event], None], on_stop: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._work = inherited(work)
        self._on_stop = on_stop
        self._stopping = threading.Event()
        self._on_end: Callable[[], None] | None = None
        # A daemon: a thread that will not stop must not keep a finished process alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, on_end: Callable[[], None] | None = None) -> None:
        """Start the thread. It calls ``on_end`` when the work is over, whether it returned or raised."""
        self._on_end = on_end
        self._thread.start()

    def stop(self) -> None:
        """Request the work to return, without waiting. Repeated calls and calls before the start are harmless."""
        if not self._stopping.is_set():
            self._stopping.set()
            if self._on_stop is not None and self._thread.is_alive():
                self._on_stop()

    @property
    def ended(self) -> str | None:
        """A sentence on how the work ended. None if the work has not begun or is running."""
        if self._thread.ident is None or self._thread.is_alive():
            return None
        how = "ended" if self.failure is None else f"died: {self.failure!r}"
        return f"service {self.name} {how}"

    def join(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds. Return whether the thread has ended or was never started."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:  # `run_services` raises it in the main thread
            self.failure = error
        finally:
            if self._on_end is not None:
                self._on_end()


def run_services(
    services: Sequence[Service], stop_seconds: float = STOP_SECONDS, on_stop: Callable[[], None] | None = None
) -> None:
    """Start the services in order. At a signal, or when one service ends, stop all of them in reverse order.

    ``on_stop`` is called before they stop. A service that does not stop delays the others for `TURN_SECONDS` only.

    Returns after SIGTERM, or when a service ended without an error. Raises the failure of a service; else TimedOut if a
    service did not stop within ``stop_seconds``; else KeyboardInterrupt after SIGINT. A second signal ends the process
    at once. Call it in the main thread only.
    """
    # Not a threading.Event: the signal handler runs in this thread, which may hold the event's lock at that time.
    # And not a wait that only a signal to this thread interrupts: the system may deliver the signal to any thread, or
    # to this one right before it waits. The wakeup descriptor is written in each of these cases.
    with contextlib.closing(_Over()) as over, _signals(over) as received:
        started: list[Service] = []
        try:
            for service in services:
                if received:
                    break
                service.start(over.tell)
                started.append(service)
            over.wait()
        finally:
            if on_stop is not None:
                on_stop()
            late = _stop(started, stop_seconds)
    failure = next((service.failure for service in services if service.failure is not None), None)
    if failure is not None:
        raise failure
    if late:
        raise TimedOut("services did not stop", services=",".join(late), seconds=stop_seconds)
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _stop(services: Sequence[Service], seconds: float) -> list[str]:
    """Stop the services; return the names of those that still run at the deadline."""
    deadline = time.monotonic() + seconds
    for service in reversed(services):
        service.stop()
        service.join(min(TURN_SECONDS, deadline - time.monotonic()))
    return [service.name for service in services if not service.join(deadline - time.monotonic())]


@contextlib.contextmanager
def _signals(over: _Over) -> Iterator[list[int]]:
    """Let SIGINT and SIGTERM end the wait for ``over``, and collect their numbers. Restores the old handlers."""
    received: list[int] = []
    woken = signal.set_wakeup_fd(over.fileno(), warn_on_full_buffer=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for signal_number in before:
            signal.signal(signal_number, signal.SIG_DFL)

    for number in before:
        signal.signal(number, take)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
