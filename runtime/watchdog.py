"""Tells people, and the supervisor of the process, which threads hang: one that hangs alive raises nothing itself.

    with Watchdog(clock, longest_s, Supervisor(), warn):          # watched are this thread and all it makes work for
        Service("chores", chores.run)

    def run(self, stop):
        go_round("chores", stop, self.turn, lambda: LOOK_S)       # every turn is a sign of life

    alive()                                                       # so is every piece of a turn that takes long

Nobody hands it from room to room: a thread is watched by whoever watches the thread that made its work (`inherited`),
and `alive` knows by itself whose thread it is in. What every long act passes says it: each answer and piece of the
store, each poll of the topic, each wait for the quota. So a loop is silent only while one single thing takes long, or
while it waits for its next turn, a minute at most.
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
"""Of the stack of a thread that hangs, the innermost."""
SEND_S = 1.0


@dataclass(frozen=True, slots=True)
class Hang:
    """A thread that has said nothing for ``seconds``, which is longer than its loop may. ``doing``: what it is at."""

    loop: str
    doing: str
    seconds: float
    thread: int

    def __str__(self) -> str:
        doing = f" doing={self.doing}" if self.doing else ""
        return f"a thread hangs. loop={self.loop}{doing} seconds={self.seconds:.0f}"


class Supervisor:
    """Who started this process and wants to hear of it (systemd, `sd_notify(3)`): a sign of life every few seconds, or
    it ends the process after ``WatchdogSec`` and starts another. Nobody, without ``NOTIFY_SOCKET``."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # "@": an abstract address of Linux

    def tell(self, state: str) -> None:
        """One datagram, as far as that is possible."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(SEND_S)
                to.sendto(state.encode(), self._address)


class Watchdog:
    """Of one process, while entered; also of what it does before it serves. Thread-safe.

    ``longest_s``: of every loop there is, how long one of its threads may be silent. ``warn`` gets a line a hang.
    """

    def __init__(
        self, clock: Clock, longest_s: Mapping[str, float], supervisor: Supervisor, warn: Callable[..., object]
    ) -> None:
        self.clock, self.longest_s, self._supervisor, self._warn = clock, longest_s, supervisor, warn
        self.lock = threading.Lock()
        self.hearts: set[_Heart] = set()
        self._told: dict[tuple[str, str, int], Hang] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        """Ready, as far as the supervisor is concerned: from here on it is the signs of life that tell."""
        _here.watchdog = self
        self._supervisor.tell("READY=1")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        _here.watchdog = _here.heart = None
        self._stop.set()
        self._thread.join()

    def hangs(self) -> list[Hang]:
        """The longest first."""
        now = self.clock.monotonic()
        with self.lock:
            silent = [(now - each.last, each) for each in self.hearts]
        found = [Hang(each.loop, each.doing, s, each.thread) for s, each in silent if s >= each.longest_s]
        return sorted(found, key=lambda each: -each.seconds)

    def look(self) -> None:
        """Once."""
        hangs = {(each.loop, each.doing, each.thread): each for each in self.hangs()}
        for key, hang in hangs.items():
            if key not in self._told:
                self._warn("a thread hangs", **_facts(hang), where=_where(hang.thread))
        for key, hang in self._told.items():
            if key not in hangs:
                self._warn("a thread that hung goes on", **_facts(hang))
        self._told = hangs
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
    """Of each thread."""

    watchdog: Watchdog | None = None
    heart: _Heart | None = None


_here = _Here()


def inherited(work: Callable[P, R]) -> Callable[P, R]:
    """``work``, for another thread: watched there by whoever watches the thread that asks here."""
    watchdog = _here.watchdog

    def watched(*args: P.args, **kwargs: P.kwargs) -> R:
        _here.watchdog = watchdog
        return work(*args, **kwargs)

    return watched


@contextmanager
def loop(name: str, doing: str = "") -> Iterator[None]:
    """Meanwhile the thread that asks must be `alive` again and again, where somebody watches.

    Raises KeyError for a loop that nobody gave a limit.
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
    """Turn after turn until ``stop``, with a pause after each: short beside what the loop may be silent."""
    with loop(name):
        while not stop.is_set():
            turn()
            alive()
            stop.wait(pause_s())


def alive() -> None:
    """The thread that asks goes on. Costs nothing; in a thread that is in no loop it means nothing."""
    if _here.heart is not None and _here.watchdog is not None:
        _here.heart.last = _here.watchdog.clock.monotonic()


def _facts(hang: Hang) -> dict[str, object]:
    return {"loop": hang.loop, "doing": hang.doing, "seconds": round(hang.seconds)}


def _where(thread: int) -> str:
    """The innermost calls of a thread, the innermost last."""
    frame = sys._current_frames().get(thread)
    calls = traceback.extract_stack(frame)[-FRAMES:] if frame is not None else []
    return " > ".join(f"{os.path.basename(call.filename)}:{call.lineno} {call.name}" for call in calls)
