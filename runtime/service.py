"""A process made of services: each a thread that starts, is asked to stop, and is joined.

    run_services([tail, agent, management])   # until SIGINT, SIGTERM, or one of them ends

A service that fails takes the process with it: half an agent is worse than none, and a supervisor restarts a whole one.
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
"""What all services together get to return after they were asked to. A process is gone 10 s after its signal."""
TURN_SECONDS = 1.0
"""How long one service may keep those that were started before it from being asked to stop."""


_ENDS = (b"\0", bytes([signal.SIGINT]), bytes([signal.SIGTERM]))
"""What the main thread is woken by at the end; other signals are none."""


class _Over:
    """What the main thread waits for: a signal, or the end of a service. `tell` is for any thread, and at any time."""

    def __init__(self) -> None:
        self._hears, self._tells = socket.socketpair()
        self._tells.setblocking(False)

    def tell(self) -> None:
        with contextlib.suppress(OSError):  # told often enough, or nobody waits any more
            self._tells.send(b"\0")

    def wait(self) -> None:
        while self._hears.recv(1) not in _ENDS:
            pass  # a signal that somebody else takes

    def fileno(self) -> int:
        """For `signal.set_wakeup_fd`."""
        return self._tells.fileno()

    def close(self) -> None:
        self._hears.close()
        self._tells.close()


class Service:
    """One thread. ``work`` gets an event that is set when it should return; ``on_stop`` wakes work that cannot wait on
    an event (a server's loop)."""

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
        """``on_end`` is called from the thread when the work is over, well or not."""
        self._on_end = on_end
        self._thread.start()

    def stop(self) -> None:
        """Asks; returns at once. Harmless when asked again, or before the start."""
        if not self._stopping.is_set():
            self._stopping.set()
            if self._on_stop is not None and self._thread.is_alive():
                self._on_stop()

    @property
    def ended(self) -> str | None:
        """How its work ended, for people; None: not begun, or at work."""
        if self._thread.ident is None or self._thread.is_alive():
            return None
        how = "ended" if self.failure is None else f"died: {self.failure!r}"
        return f"service {self.name} {how}"

    def join(self, timeout: float) -> bool:
        """Whether the thread is over within ``timeout`` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:  # kept whole: `run_services` raises it in the main thread
            self.failure = error
        finally:
            if self._on_end is not None:
                self._on_end()


def run_services(
    services: Sequence[Service], stop_seconds: float = STOP_SECONDS, on_stop: Callable[[], None] | None = None
) -> None:
    """Starts them in order, waits for a signal or for the first to end, stops them in reverse order.

    ``on_stop`` is called before they are. One that does not stop keeps the others waiting for `TURN_SECONDS` only.

    Returns after SIGTERM or when one ended well; raises KeyboardInterrupt after SIGINT, the first failure, or TimedOut
    when some did not stop in ``stop_seconds``. A second signal ends the process at once. Main thread only.
    """
    # No Event: a handler that sets the one its own thread is about to wait for would meet that event's own lock, held.
    # And nothing that only the main thread can be interrupted in: the system may hand the signal to any thread, or to
    # this one right before it waits; the wakeup descriptor is written wherever and whenever that is.
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
    """Names of those that were still running at the deadline."""
    deadline = time.monotonic() + seconds
    for service in reversed(services):
        service.stop()
        service.join(min(TURN_SECONDS, deadline - time.monotonic()))
    return [service.name for service in services if not service.join(deadline - time.monotonic())]


@contextlib.contextmanager
def _signals(over: _Over) -> Iterator[list[int]]:
    """SIGINT and SIGTERM end what waits for ``over``; their numbers are collected. What was before comes back after."""
    received: list[int] = []
    woken = signal.set_wakeup_fd(over.fileno(), warn_on_full_buffer=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    for number in before:
        signal.signal(number, take)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
