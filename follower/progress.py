"""Wakes callers that wait for a view: when it moves, when something stops it for now, or when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..state.errors import TierstateError


class Progress:
    """``lock`` guards all state of the view; ``moves`` grows with every step. ``trouble`` may pass, ``failure`` does
    not.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.moves = 0
        self.trouble: TierstateError | None = None
        self.failure: TierstateError | None = None

    @property
    def stopped_by(self) -> TierstateError | None:
        return self.failure or self.trouble

    def moved(self) -> None:
        with self.lock:
            self.moves += 1
            self.lock.notify_all()

    def meets(self, trouble: TierstateError | None) -> None:
        """Set the trouble that stops the view, or None once it has passed."""
        if trouble is not self.trouble:
            with self.lock:
                self.trouble = trouble
                self.lock.notify_all()

    def fails(self, error: TierstateError) -> None:
        with self.lock:
            self.failure = error
            self.lock.notify_all()

    def wait(self, reached: Callable[[], bool], timeout: float) -> None:
        """Wait until ``reached``, or until something stops the view."""
        with self.lock:
            self.lock.wait_for(lambda: self.stopped_by is not None or reached(), timeout)
