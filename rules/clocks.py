"""Compares the clocks that an agent can see. Pure.

Time-based deletion cannot be undone, so one clock alone never decides it. The witnesses are the machine's clock,
the time of this process's newest appends (the brokers' clocks: `_tier-state` is LogAppendTime), and the ``Date`` of the
store's answers. While two of them differ by more than a minute, nothing is deleted because of its age. If all clocks
but one agree, the reason names that clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..state.offsets import TimestampMs, moment
from .reasons import Reason, Why, lasting

APART_MS = 60_000
"""If clocks differ by more than this, nothing is deleted because of its age."""
NOTED_MS = 5_000
"""Clocks that differ by more than this are logged and shown by `tierstate check`."""
MACHINE, STORE = "this machine", "the object store"
NO_DELETION = TimestampMs(-1)
"""A time at which no retention, grace period or lease has ended."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A clock and the time that it shows. ``clock`` names its owner."""

    clock: str
    now: TimestampMs


@dataclass(frozen=True, slots=True)
class Clocks:
    """``machine`` is this machine's clock, ``others`` are all other witnesses."""

    machine: Witness
    others: tuple[Witness, ...]

    @property
    def alone(self) -> bool:
        """Return whether the machine's clock is the only witness."""
        return not self.others

    @property
    def latest(self) -> TimestampMs:
        """Return the latest time, to write into facts. Periods that begin then may end too late, never too early."""
        return max(each.now for each in self._all)

    @property
    def for_deletion(self) -> TimestampMs:
        """Return the earliest time, to compute ages, or `NO_DELETION` while the clocks are too far apart."""
        return NO_DELETION if self.apart else TimestampMs(min(each.now for each in self._all))

    @property
    def apart(self) -> Why | None:
        """Return why nothing may be deleted because of its age; None while the clocks agree."""
        text = differ(self._all, APART_MS)
        return None if text is None else Why(Reason.CLOCKS_DISAGREE, f"{text}: nothing is deleted because of its age")

    @property
    def doubt(self) -> Why | None:
        """Return `apart`, or a reason if nothing confirms the machine's clock."""
        if self.alone:
            return Why(Reason.TIER_STATE_AWAY, "the brokers' time is unknown: no append of this process was answered")
        return self.apart

    @property
    def noted(self) -> str | None:
        """Return one sentence about clocks that differ by more than `NOTED_MS`; None if they do not."""
        return differ(self._all, NOTED_MS)

    @property
    def _all(self) -> tuple[Witness, ...]:
        return (self.machine, *self.others)


def differ(witnesses: Sequence[Witness], by_ms: int) -> str | None:
    """Return one sentence about clocks that differ by more than ``by_ms``; None if they do not.

    It names the wrong clock if there are at least two other clocks and all of them agree.
    """
    first, last = min(witnesses, key=lambda each: each.now), max(witnesses, key=lambda each: each.now)
    if last.now - first.now <= by_ms:
        return None
    for wrong, right in ((first, last), (last, first)):
        others = [each for each in witnesses if each is not wrong]
        if len(others) > 1 and max(abs(each.now - right.now) for each in others) <= by_ms:
            way = "behind" if wrong.now < right.now else "ahead of"
            names = ", ".join(each.clock for each in others)
            return f"the clock of {wrong.clock} is wrong, {lasting(abs(wrong.now - right.now))} {way} {names}"
    times = ", ".join(f"{each.clock} shows {moment(each.now)}" for each in witnesses)
    return f"the clocks differ by {lasting(last.now - first.now)}: {times}"
