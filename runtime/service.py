"""A process made of services: each a thread that starts, is asked to stop, and is joined.

    run_services([tail, agent, management])   # until SIGINT, SIGTERM, or one of them ends

A service that fails takes the process with it: half an agent is worse than none, and a supervisor restarts a whole one.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from ..state.errors import TimedOut

STOP_SECONDS = 30.0
Over = queue.SimpleQueue[None]
"""Something in it: it is time to stop."""


class Service:
    """One thread. ``work`` gets an event that is set when it should return; ``on_stop`` wakes work that cannot wait on
    an event (a server's loop)."""

    def __init__(
        self, name: str, work: Callable[[threading.Event], None], on_stop: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._work = work
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


def run_services(services: Sequence[Service], stop_seconds: float = STOP_SECONDS) -> None:
    """Starts them in order, waits for a signal or for the first to end, stops them in reverse order.

    Returns after SIGTERM or when one ended well; raises KeyboardInterrupt after SIGINT, the first failure, or TimedOut
    when some did not stop in ``stop_seconds``. A second signal ends the process at once. Main thread only.
    """
    # No Event: a handler that sets the one its own thread is about to wait for would meet that event's own lock, held.
    over: Over = queue.SimpleQueue()
    with _signals(over) as received:
        started: list[Service] = []
        try:
            for service in services:
                if not over.empty():
                    break
                service.start(lambda: over.put(None))
                started.append(service)
            over.get()
        finally:
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
        service.join(deadline - time.monotonic())
    return [service.name for service in services if not service.join(0)]


@contextlib.contextmanager
def _signals(over: Over) -> Iterator[list[int]]:
    """SIGINT and SIGTERM put into ``over``; their numbers are collected. The former handlers come back afterwards."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take(number: int, frame: FrameType | None) -> None:
        received.append(number)
        over.put(None)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    for number in before:
        signal.signal(number, take)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
