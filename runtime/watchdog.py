"""Report to people, and to the process' supervisor, which threads hang: a thread that hangs raises no error itself.

    with Watchdog(clock, longest_s, Supervisor(), warn):          # watches this thread and all that it starts
        Service("chores", chores.run)

    def run(self, stop):
        go_round("chores", stop, self.turn, lambda: LOOK_S)       # every iteration is a sign of life

    alive()                                                       # also a sign of life, within a long iteration

No code passes the watchdog as an argument. A thread has the watchdog of the thread that created its work (`inherited`),
and `alive` finds the `_Heart` of the calling thread. Every long operation calls `alive`: at each answer and part from
the object store, each poll of the topic, each wait for the quota. So a loop is silent only while one single call takes
long, or while it waits for its next iteration (a minute at most).
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from .clock import Clock

P = ParamSpec("P")
R = TypeVar("R")
LOOK_S = 10.0
FRAMES = 6
"""Number of innermost frames of a hanging thread's stack that are logged."""
SEND_S = 1.0


@dataclass(frozen=True, slots=True)
class Hang:
    """A thread without a sign of life for ``seconds``, more than its loop's limit. ``doing``: its current work."""

    loop: str
    doing: str
    seconds: float
    thread: int

    def __str__(self) -> str:
        doing = f" doing={self.doing}" if self.doing else ""
        return f"a thread hangs. loop={self.loop}{doing} seconds={self.seconds:.0f}"


class Supervisor:
    """The supervisor that started this process (systemd, `sd_notify(3)`). Without a sign of life for ``WatchdogSec``
    the supervisor ends the process and starts another one. Nothing is sent if ``NOTIFY_SOCKET`` is not set."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # "@": an abstract address of Linux

    def tell(self, state: str) -> None:
        """Send the state as one datagram; a failure is ignored."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(SEND_S)
                to.sendto(state.encode(), self._address)


class Watchdog:
    """Watches threads of one process within its ``with`` block, also during start-up. Thread-safe.

    ``longest_s``: the seconds that threads of each loop may be silent. ``warn`` is called when a hang begins or ends.
    """

    def __init__(
        self, clock: Clock, longest_s: Mapping[str, float], supervisor: Supervisor, warn: Callable[..., object]
    ) -> None:
        self.clock, self.longest_s, self._supervisor, self._warn = clock, longest_s, supervisor, warn
        self.lock = threading.Lock()
        self.hearts: set[_Heart] = set()
        self._last_hangs: dict[tuple[str, str, int], Hang] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        """Report to the supervisor that the process is ready. The supervisor expects signs of life from then on."""
        _here.watchdog = self
        self._supervisor.tell("READY=1")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        _here.watchdog = _here.heart = None
        self._stop.set()
        self._thread.join()

    def hangs(self) -> list[Hang]:
        """Return the threads that hang now, the longest hang first."""
        now = self.clock.monotonic()
        with self.lock:
            silent = [(now - each.last, each) for each in self.hearts]
        hangs = [Hang(each.loop, each.doing, s, each.thread) for s, each in silent if s >= each.longest_s]
        return sorted(hangs, key=lambda each: -each.seconds)

    def look(self) -> None:
        """Warn once about each new hang and each end of a hang. Notify the supervisor if no thread hangs."""
        hangs = {(each.loop, each.doing, each.thread): each for each in self.hangs()}
        for key, hang in hangs.items():
            if key not in self._last_hangs:
                self._warn("a thread hangs", **_facts(hang), where=_where(hang.thread))
        for key, hang in self._last_hangs.items():
            if key not in hangs:
                self._warn("a thread that hung goes on", **_facts(hang))
        self._last_hangs = hangs
        if not hangs:
            self._supervisor.tell("WATCHDOG=1")

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(LOOK_S)


@dataclass(slots=True, eq=False)
class _Heart:
    loop: str
    doing: str
    longest_s: float
    thread: int
    last: float


class _Here(threading.local):
    watchdog: Watchdog | None = None
    heart: _Heart | None = None


_here = _Here()


def inherited(work: Callable[P, R]) -> Callable[P, R]:
    """Return ``work`` for another thread, which then has the same watchdog as the thread that calls `inherited`."""
    watchdog = _here.watchdog

    def watched(*args: P.args, **kwargs: P.kwargs) -> R:
        _here.watchdog = watchdog
        return work(*args, **kwargs)

    return watched


@contextmanager
def loop(name: str, doing: str = "") -> Iterator[None]:
    """Watch the calling thread within the block, if it has a watchdog. The thread must call `alive` repeatedly.

    Raises KeyError if the watchdog has no limit for the loop ``name``.
    """
    watchdog, before = _here.watchdog, _here.heart
    if watchdog is None:
        yield
        return
    heart = _Heart(name, doing, watchdog.longest_s[name], threading.get_ident(), watchdog.clock.monotonic())
    with watchdog.lock:
        watchdog.hearts.add(heart)
    _here.heart = heart
    try:
        yield
    finally:
        _here.heart = before
        with watchdog.lock:
            watchdog.hearts.discard(heart)


def go_round(name: str, stop: threading.Event, turn: Callable[[], object], pause_s: Callable[[], float]) -> None:
    """Call ``turn`` until ``stop`` is set, with a pause after each call, far below the limit of the loop."""
    with loop(name):
        while not stop.is_set():
            turn()
            alive()
            stop.wait(pause_s())


def alive() -> None:
    """Record a sign of life of the calling thread. Costs almost nothing, and does nothing outside of `loop`."""
    if _here.heart is not None and _here.watchdog is not None:
        _here.heart.last = _here.watchdog.clock.monotonic()


def _facts(hang: Hang) -> dict[str, object]:
    return {"loop": hang.loop, "doing": hang.doing, "seconds": round(hang.seconds)}


def _where(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    calls = traceback.extract_stack(frame)[-FRAMES:] if frame is not None else []
    return " > ".join(f"{os.path.basename(call.filename)}:{call.lineno} {call.name}" for call in calls)
