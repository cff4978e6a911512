"""Wakes callers that wait for a view: when the view changes, when an error blocks its tail, or when the tail ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..state.errors import TierstateError


class Progress:
    """``lock`` guards the follower's shared state. ``moves`` counts the changes of the view. ``trouble`` blocks the
    tail while it retries; ``failure`` ended the tail.
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
        """Set the error that blocks the tail, or None once the tail works again."""
        if trouble is not self.trouble:
            with self.lock:
                self.trouble = trouble
                self.lock.notify_all()

    def fails(self, error: TierstateError) -> None:
        with self.lock:
            self.failure = error
            self.lock.notify_all()

    def wait(self, reached: Callable[[], bool], timeout: float) -> None:
        """Wait until ``reached``, until an error stops the tail, or for ``timeout`` seconds."""
        with self.lock:
            self.lock.wait_for(lambda: self.stopped_by is not None or reached(), timeout)
