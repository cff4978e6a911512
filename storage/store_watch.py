"""Does the object store answer? Asked now and then, so that whoever wants to know need not wait for it."""

from __future__ import annotations

import threading

from ..runtime.clock import Clock
from ..runtime.heartbeat import UNWATCHED, Heartbeats
from ..state.errors import ObjectNotFound, TierstateError
from .object_store import ObjectStore
from .probe import PROBES

LOOK_S = 15.0
PATIENCE_S = 10.0
"""An answer that takes longer counts as none."""
KEY = f"{PROBES}never-there"


class StoreWatch:
    """One HEAD of an object that never exists, every `LOOK_S`. Reading is thread-safe and never waits."""

    def __init__(self, store: ObjectStore, clock: Clock, heartbeats: Heartbeats = UNWATCHED) -> None:
        self._store, self._clock, self._heartbeats = store, clock, heartbeats
        self._asked_at: float | None = None
        self._trouble: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        with self._heartbeats.of("store watch") as heart:
            while not stop.is_set():
                self.look()
                heart.rest(stop, LOOK_S)

    def look(self) -> None:
        """Ask once."""
        self._asked_at = self._clock.monotonic()
        try:
            self._store.head(KEY)
        except ObjectNotFound:
            self._trouble = None
        except TierstateError as error:
            self._trouble = str(error)
        else:
            self._trouble = None
        self._asked_at = None

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be relied upon now; None: it answered when it was last asked."""
        asked_at = self._asked_at
        if asked_at is not None:
            waited = self._clock.monotonic() - asked_at
            if waited >= PATIENCE_S:
                return f"the store does not answer. store={self._store.description} waited_seconds={waited:.0f}"
        return self._trouble
