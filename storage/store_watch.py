"""Watches whether the object store answers."""

from __future__ import annotations

import threading
from contextlib import suppress

from ..runtime.answer_watch import AnswerWatch
from ..runtime.clock import Clock
from ..runtime.watchdog import go_round
from ..state.errors import ObjectNotFound
from .object_store import ObjectStore
from .probe import PROBES

KEY = f"{PROBES}never-there"
TIMEOUT_S = 10.0


class StoreWatch(AnswerWatch):
    """Sends a HEAD of an object that never exists: every 15 seconds, or every 3 if the store does not answer."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        def ask() -> None:
            with suppress(ObjectNotFound):
                store.head(KEY)

        silent = f"the store does not answer. store={store.description}"
        super().__init__(ask, silent, clock, every_s=15.0, again_s=3.0, timeout_s=TIMEOUT_S)

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set."""
        go_round("store watch", stop, self.look, self.pause_s)
