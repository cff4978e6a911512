"""Reads the store's clock from the ``Date`` header of its answers, without additional requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol, runtime_checkable

from ..runtime.clock import Clock
from ..state.offsets import TimestampMs


@dataclass(frozen=True, slots=True)
class StoreDate:
    """The time in an answer, and the monotonic time in seconds at which the answer arrived."""

    at: TimestampMs
    seen: float


@runtime_checkable
class ShowsDate(Protocol):
    """A store that is accessed by HTTP. (A folder has no clock of its own.)"""

    @property
    def date(self) -> StoreDate | None:
        """The date of the newest answer. None before the first answer."""
        ...


class DateHeard:
    """Keeps the newest ``Date``. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.newest: StoreDate | None = None

    def hear(self, header: str | None) -> None:
        """Keep the date of an answer. A missing or unreadable date changes nothing."""
        try:
            at = parsedate_to_datetime(header or "")
        except ValueError:
            return
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        self.newest = StoreDate(TimestampMs(int(aware.timestamp() * 1000)), self._clock.monotonic())
