"""Check periodically whether a service answers, so that other code can read the result without waiting.

go_round("store watch", stop, watch.look, watch.pause_s)
"""

from __future__ import annotations

from collections.abc import Callable

from ..state.errors import TierstateError
from .clock import Clock


class AnswerWatch:
    """Reading `trouble` is thread-safe and never waits. ``returned`` is called when the service answers again."""

    def __init__(
        self, ask: Callable[[], object], silent: str, clock: Clock, *, every_s: float, again_s: float, timeout_s: float
    ) -> None:
        """``ask`` raises TierstateError if the service does not answer. It is called every ``every_s`` seconds, and
        every ``again_s`` seconds after a failure. ``silent``: the trouble if an answer takes over ``timeout_s``.
        """
        self._ask, self._silent, self._clock = ask, silent, clock
        self._every_s, self._again_s, self._timeout_s = every_s, again_s, timeout_s
        self._asked_at: float | None = None
        self._trouble: str | None = None
        self.returned: Callable[[], None] = lambda: None

    def pause_s(self) -> float:
        return self._again_s if self._trouble else self._every_s

    def look(self) -> None:
        before, self._asked_at = self._trouble, self._clock.monotonic()
        self._trouble = self._answer()
        before, self._asked_at = before or self._waited(), None
        if before and self._trouble is None:
            self.returned()

    def _answer(self) -> str | None:
        try:
            self._ask()
        except TierstateError as error:
            return str(error)
        return None

    @property
    def trouble(self) -> str | None:
        """The reason not to rely upon the service now; None if it answered the last check."""
        return self._waited() or self._trouble

    def _waited(self) -> str | None:
        asked_at = self._asked_at
        waited = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        return None if waited < self._timeout_s else f"{self._silent} waited_seconds={waited:.0f}"
