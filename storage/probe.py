"""Checks whether a store answers, all the time, and once, at an agent's start, whether it obeys conditional puts."""

from __future__ import annotations

import threading
from contextlib import suppress

from ..runtime.answer_watch import AnswerWatch
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.listener import ConditionalPutIgnored, Listener
from ..runtime.watchdog import go_round
from ..state.errors import ObjectExists, ObjectNotFound, TierstateError
from ..state.ids import FactId
from .object_store import ObjectStore, ObjectWriter

PROBES = "_tierstate/check/"
"""Where probes are written, below the store's URL."""
TIMEOUT_S = 10.0


def probe_conditional_put(store: ObjectWriter) -> bool:
    """Put one small object twice and delete it. Return True if the store refused the second put.

    This costs two PUTs, one DELETE and, if the condition is obeyed, one HEAD. `tierstate certify` also checks streams
    and racing writers. Raises the errors of `put_if_absent`. The object is deleted in any case, if possible.
    """
    key = f"{PROBES}{FactId.of(RandomIds().uuid())}"
    try:
        store.put_if_absent(key, b"first")
        try:
            store.put_if_absent(key, b"second")
        except ObjectExists:
            return True
        return False
    finally:
        with suppress(TierstateError):
            store.delete(key)


def warn_if_overwriting(store: ObjectStore, listener: Listener) -> None:
    """Notify the listener if the store ignores the condition. A failing probe is not reported: copies fail then too."""
    with suppress(TierstateError):
        if not probe_conditional_put(store):
            listener(ConditionalPutIgnored(store.description))


class StoreWatch(AnswerWatch):
    """Sends a HEAD of an object that never exists: every 15 seconds, or every 3 if the store does not answer."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        def ask() -> None:
            with suppress(ObjectNotFound):
                store.head(f"{PROBES}never-there")

        silent = f"the store does not answer. store={store.description}"
        super().__init__(ask, silent, clock, every_s=15.0, again_s=3.0, timeout_s=TIMEOUT_S)

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set."""
        go_round("store watch", stop, self.look, self.pause_s)
