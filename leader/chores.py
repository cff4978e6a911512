"""An agent's work for the tier-state partitions that its broker leads, in addition to the partitions it hosts.

Chores (the archive, checkpoints) are passed in: their packages are not imported here. All share one thread. A chore
that fails is reported, runs again when it is next due, and delays no other chore. Every chore checks ``stop`` before
each irreversible step. The remaining steps are done after the next start, as after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..runtime.listener import ChoreFailed, Listener
from ..runtime.operation import Operation, run
from ..runtime.watchdog import alive, go_round
from ..state.errors import TierstateError
from .custody import Custodian

LOOK_S = 5.0
CUSTODY_S = 60.0
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Chore:
    """An ``operation`` that runs for each led tier-state partition every ``every_s`` seconds, and at the start.

    ``operation`` also gets the event that is set when the process stops, for long work between two steps. ``called``
    returns whether the chore must run before it is due.
    """

    name: str
    every_s: float
    operation: Callable[[int, threading.Event], Operation[object]]
    called: Callable[[int], bool] = lambda tier_partition: False


class ChoreLoop:
    """Runs chores. ``led``: the tier-state partitions this broker leads. ``look_around`` runs before each round."""

    def __init__(
        self,
        led: Callable[[], Collection[int]],
        chores: Sequence[Chore],
        custodian: Custodian,
        look_around: Callable[[], None],
        clock: Clock,
        listener: Listener,
    ) -> None:
        self._led, self._chores, self._custodian = led, chores, custodian
        self._look_around, self._clock, self._listener = look_around, clock, listener
        self._due: dict[tuple[str, int], float] = {}
        self._failing: set[tuple[str, int]] = set()
        """Chores whose last run failed: they run only when they are due, even if called for."""
        self._custody_due = 0.0
        self._blind: str | None = None
        """Why the last look failed."""

    @property
    def names(self) -> list[str]:
        """Return the names of all chores, as `ChoreFailed` events carry them."""
        return ["look", "custody", *(chore.name for chore in self._chores)]

    def run(self, stop: threading.Event) -> None:
        """Run chores until ``stop`` is set."""
        go_round("chores", stop, lambda: self.advance(stop), lambda: LOOK_S)

    def advance(self, stop: threading.Event) -> None:
        """Do everything that is due now."""
        try:
            self._look_around()
            led = sorted(self._led())
        except TierstateError as error:  # a cluster that does not answer now
            before, self._blind = self._blind, str(error)
            self._listener(ChoreFailed("look", NOBODY, self._blind, again=self._blind == before))
            return
        self._blind = None
        for number in led:
            for chore in self._chores:
                if not stop.is_set():
                    alive()
                    self._take(chore, number, stop)
        if self._clock.monotonic() >= self._custody_due and not stop.is_set():
            self._look_after(stop)

    def _take(self, chore: Chore, number: int, stop: threading.Event) -> None:
        now = self._clock.monotonic()
        called = (chore.name, number) not in self._failing and chore.called(number)
        if now < self._due.get((chore.name, number), 0.0) and not called:
            return
        self._due[chore.name, number] = now + chore.every_s
        try:
            run(chore.operation(number, stop), stop)
            self._failing.discard((chore.name, number))
        except TierstateError as error:
            self._failing.add((chore.name, number))
            if not stop.is_set():  # the stop may have ended the operation
                self._listener(ChoreFailed(chore.name, number, str(error)))

    def _look_after(self, stop: threading.Event) -> None:
        self._custody_due = self._clock.monotonic() + CUSTODY_S
        try:
            while not stop.is_set() and run(self._custodian.steps(), stop):
                pass
        except TierstateError as error:
            self._listener(ChoreFailed("custody", NOBODY, str(error)))
