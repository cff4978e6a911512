"""Does somebody answer? Asked now and then, so that whoever wants to know need not wait for it.

go_round("store watch", stop, watch.look, watch.pause_s)
"""

from __future__ import annotations

from collections.abc import Callable

from ..state.errors import TierstateError
from .clock import Clock


class AnswerWatch:
    """Reading is thread-safe and never waits. ``returned``: called when there is an answer again."""

    def __init__(
        self, ask: Callable[[], object], silent: str, clock: Clock, *, every_s: float, again_s: float, patience_s: float
    ) -> None:
        """``ask`` raises TierstateError where the answer is none, ``again_s`` after it is asked anew; an answer that
        takes longer than ``patience_s`` counts as none, of which ``silent`` is said.
        """
        self._ask, self._silent, self._clock = ask, silent, clock
        self._every_s, self._again_s, self._patience_s = every_s, again_s, patience_s
        self._asked_at: float | None = None
        self._trouble: str | None = None
        self.returned: Callable[[], None] = lambda: None

    def pause_s(self) -> float:
        """Until it should be asked again."""
        return self._again_s if self._trouble else self._every_s

    def look(self) -> None:
        """Ask once."""
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
        """Why it cannot be relied upon now; None: it answered when it was last asked."""
        return self._waited() or self._trouble

    def _waited(self) -> str | None:
        """For an answer that does not come."""
        asked_at = self._asked_at
        waited = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        return None if waited < self._patience_s else f"{self._silent} waited_seconds={waited:.0f}"
