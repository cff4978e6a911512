"""Does the object store answer? Asked now and then, so that whoever wants to know need not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..runtime.clock import Clock
from ..runtime.watchdog import go_round
from ..state.errors import ObjectNotFound, TierstateError
from .object_store import ObjectStore
from .probe import PROBES

LOOK_S = 15.0
AGAIN_S = 3.0
"""While it does not answer."""
PATIENCE_S = 10.0
"""An answer that takes longer counts as none."""
KEY = f"{PROBES}never-there"


class StoreWatch:
    """One HEAD of an object that never exists, every `LOOK_S`. Reading is thread-safe and never waits.

    ``returned``: called when it answers again.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._asked_at: float | None = None
        self._trouble: str | None = None
        self.returned: Callable[[], None] = lambda: None

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        go_round("store watch", stop, self.look, lambda: AGAIN_S if self._trouble else LOOK_S)

    def look(self) -> None:
        """Ask once."""
        before, self._asked_at = self._trouble, self._clock.monotonic()
        self._trouble = self._answer()
        before, self._asked_at = before or self._waited(), None
        if before and self._trouble is None:
            self.returned()

    def _answer(self) -> str | None:
        try:
            self._store.head(KEY)
        except ObjectNotFound:
            return None
        except TierstateError as error:
            return str(error)
        return None

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be relied upon now; None: it answered when it was last asked."""
        return self._waited() or self._trouble

    def _waited(self) -> str | None:
        """For an answer that does not come."""
        asked_at = self._asked_at
        waited = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        if waited < PATIENCE_S:
            return None
        return f"the store does not answer. store={self._store.description} waited_seconds={waited:.0f}"
