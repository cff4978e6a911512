"""Which threads still go round: a thread that hangs alive raises nothing, and no other thread would ever hear of it.

    with heartbeats.of("keeper") as heart:
        while not stop.is_set():
            ...                               # a turn
            heart.rest(stop, LOOK_S)          # who waits for its next turn does not hang

What takes long within a turn says so by `Heartbeats.alive`, which knows by itself whose thread it is in: at each piece
of a copy, each answer of the store, each poll of the topic. So a loop is silent only while one single thing takes long,
and how long that may be is known.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from .clock import Clock, SystemClock


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


class Heart:
    """Of one thread, from where it is made until its end; a thread that ended does not hang."""

    def __init__(self, hearts: Heartbeats, loop: str, doing: str, longest_s: float) -> None:
        self._hearts, self.loop, self.doing, self.longest_s = hearts, loop, doing, longest_s
        self.thread = threading.get_ident()
        self.beat()

    def beat(self) -> None:
        """Still going round. Costs nothing."""
        self.last = self._hearts.clock.monotonic()

    def rest(self, stop: threading.Event, seconds: float) -> None:
        """The turn is over: wait for the next one, or for ``stop``. However long that is, it is no hang."""
        self.last = math.inf
        stop.wait(seconds)
        self.beat()

    def end(self) -> None:
        self._hearts.forget(self)

    def __enter__(self) -> Heart:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


class Heartbeats:
    """Of one process. ``longest_s``: of every loop there is, how long one of its threads may be silent. Thread-safe."""

    def __init__(self, clock: Clock, longest_s: Mapping[str, float]) -> None:
        self.clock, self._longest_s = clock, longest_s
        self._lock = threading.Lock()
        self._hearts: set[Heart] = set()
        self._mine = threading.local()

    def of(self, loop: str, doing: str = "") -> Heart:
        """For the thread that asks, in which it is ended, too. Raises KeyError for a loop that nobody gave a limit."""
        heart = Heart(self, loop, doing, self._longest_s[loop])
        self._mine.heart = heart
        with self._lock:
            self._hearts.add(heart)
        return heart

    def forget(self, heart: Heart) -> None:
        """See `Heart.end`."""
        self._mine.heart = None
        with self._lock:
            self._hearts.discard(heart)

    def alive(self) -> None:
        """The thread that asks goes on. In a thread without a heart this means nothing."""
        heart: Heart | None = getattr(self._mine, "heart", None)
        if heart is not None:
            heart.beat()

    def hangs(self) -> list[Hang]:
        """The longest first."""
        now = self.clock.monotonic()
        found = [
            Hang(each.loop, each.doing, now - each.last, each.thread)
            for each in self._living()
            if now - each.last >= each.longest_s
        ]
        return sorted(found, key=lambda each: -each.seconds)

    def silent_s(self) -> dict[str, float]:
        """Of each loop: since when its thread that is silent longest is so; 0 where none is at work."""
        now = self.clock.monotonic()
        silent = dict.fromkeys(self._longest_s, 0.0)
        for each in self._living():
            silent[each.loop] = max(silent[each.loop], now - each.last)
        return silent

    def _living(self) -> list[Heart]:
        with self._lock:
            return list(self._hearts)


UNWATCHED = Heartbeats(SystemClock(), defaultdict(lambda: math.inf))
"""For whom nobody watches: a one-shot command, a test."""
