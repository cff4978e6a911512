"""The soak: disturbances in a seeded order while producers write, checks now and then and at the end, a report."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.soak.checks import Checks
from tests.soak.disturbances import Look
from tests.soak.ground import Ground
from tests.soak.kinds import KINDS, Kind, sequence
from tests.soak.watch import Watch, growth
from tierstate.state.routing import Isolation

CHECK_EVERY_S = 60.0
EFFECT_S = 120.0
"""How long the end waits for an effect that is still to be seen."""
SOON_S = 60.0
BETWEEN_S = (1.0, 5.0)
Say = Callable[[str], None]


@dataclass
class Waiting:
    kind: Kind
    look: Look


@dataclass
class Soak:
    """A soak. ``complaints`` are its failures, each a sentence; without any it held."""

    folder: Path
    seed: int
    kinds: tuple[Kind, ...] = KINDS
    say: Say = print
    happened: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0
    settled_s: float = 0.0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ground = Ground(self.folder / "work", self.seed)
        self.checks = Checks(self.ground)
        self.watch = Watch(self.folder / "watch.jsonl", self.ground.pids)
        self._waiting: list[Waiting] = []

    def open(self) -> Soak:
        """Open everything; on return every topic has been copied from."""
        ground = self.ground.open()
        self.began = time.monotonic()
        self.watch.start()
        ground.write()
        for _, name, partition in ground.places():
            ground.until(partial(ground.copied, 0, name, partition), f"{name}:{partition} is copied")
        return self

    def close(self) -> None:
        self.watch.close()
        self.checks.opened.close()
        self.ground.close()

    def run(self, minutes: float) -> None:
        """Run the disturbances; complaints are collected and do not end it."""
        over = time.monotonic() + minutes * 60
        checked = time.monotonic()
        for kind, chance in sequence(self.seed, self.kinds):
            if time.monotonic() > over:
                break
            self.disturb(kind, chance)
            time.sleep(chance.uniform(*BETWEEN_S))
            self._look()
            self.check("tally", self._tally, say=False)
            if time.monotonic() - checked > CHECK_EVERY_S:
                self.check("between", self.checks.records)
                self.check("between", partial(self.checks.verify, strict=False))
                self.check("alarms", self.checks.alarms, say=False)
                checked = time.monotonic()
        self.seconds = time.monotonic() - self.began

    def disturb(self, kind: Kind, chance: random.Random) -> None:
        began = time.monotonic()
        self.happened[kind.name] += 1
        try:
            waiting = Waiting(kind, kind.act(self.ground, chance))
            self._waiting.append(waiting)
            soon = time.monotonic() + (0 if kind.slow else SOON_S)  # before the next one hides it
            while self._look() and waiting in self._waiting and time.monotonic() < soon:
                time.sleep(0.3)
        except Exception as error:
            self._complain(f"{kind.name}: {error}", error)
        self.say(f"{began - self.began:6.0f} s  {kind.name} ({time.monotonic() - began:.0f} s)")

    def settle(self) -> None:
        """End the disturbances: writers stop, open operations end, and everything is checked."""
        began = time.monotonic()
        while self._look() and time.monotonic() < began + EFFECT_S:
            time.sleep(0.5)
        for writer in self.ground.writers:
            if writer.failed is not None:
                self._complain(f"the writer of {writer.topic} failed: {writer.failed!r}")
        self.ground.keep_everything()  # otherwise the last segments expire while they are explained
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED):
            self.check("at the end", partial(self.checks.records, isolation))
        self.check("writers stop", self._stop_writers, say=False)
        self.check("settled", self.checks.settled)
        self._look()
        self.settled_s = time.monotonic() - began
        self.complaints += [f"processes: {each}" for each in growth(self.watch.seen)]
        for kind in self.kinds:
            if self.happened[kind.name] and not self.shown[kind.name]:
                self._complain(f"{kind.name}: {self.happened[kind.name]} times, and never seen: {kind.effect}")

    def check(self, when: str, ask: Callable[[], list[str]], say: bool = True) -> None:
        began = time.monotonic()
        try:
            complaints = ask()
        except Exception as error:
            self._complain(f"{when}: {error}", error)
            return
        for each in complaints:
            self._complain(f"{when}: {each}")
        if say:
            took = time.monotonic() - began
            self.say(f"{began - self.began:6.0f} s  checked {when} ({took:.0f} s): {len(complaints)} complaints")

    def _stop_writers(self) -> list[str]:
        """Stop the writers at rest: a record in flight would come into the log, unknown to the truth."""
        for writer in self.ground.writers:
            writer.rest()
            writer.stop()
        return []

    def _tally(self) -> list[str]:
        self.checks.tally()
        return []

    def _look(self) -> bool:
        """Return whether an effect is still to be seen."""
        self.ground.journal.read()
        for each in [*self._waiting]:
            try:
                seen = each.look()
            except Exception as error:
                self._complain(f"{each.kind.name}: {error}", error)
                self._waiting.remove(each)
                continue
            if seen:
                self.shown[each.kind.name] += 1
                self._waiting.remove(each)
        return bool(self._waiting)

    def _complain(self, what: str, error: BaseException | None = None) -> None:
        at = f"at {time.monotonic() - self.began:.0f} s"
        self.complaints.append(f"{what} ({at})")
        self.say(f"COMPLAINT {at}: {what}")
        if error is not None:
            with (self.folder / "errors.txt").open("a") as file:
                file.write(f"{at}: {what}\n" + "".join(traceback.format_exception(error)) + "\n")
