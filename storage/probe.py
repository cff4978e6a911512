"""Checks whether a store answers, all the time, and once, at the start, if it obeys conditional puts and has CRCs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..runtime.answer_watch import AnswerWatch
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.listener import ConditionalPutIgnored, Listener
from ..runtime.watchdog import go_round
from ..state.errors import ObjectExists, ObjectNotFound, TierstateError
from ..state.ids import FactId
from ..state.objects import ObjectInfo
from .object_store import ObjectStore

PROBES = "_tierstate/check/"
"""Where probes are written, below the store's URL."""
NEVER_THERE = f"{PROBES}never-there"
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """``refuses``: whether the store refused a conditional put of a key that exists. ``info``: of the small object."""

    refuses: bool
    info: ObjectInfo


def probe_store(store: ObjectStore) -> StoreProbe:
    """Put one small object twice and delete it.

    This costs two PUTs, one DELETE, one HEAD and, if the condition is obeyed, another HEAD. `tierstate certify` also
    checks streams and racing writers. Raises the errors of `put_if_absent`. The object is deleted if possible.
    """
    key = f"{PROBES}{FactId.of(RandomIds().uuid())}"
    try:
        store.put_if_absent(key, b"first")
        info = store.head(key)
        try:
            store.put_if_absent(key, b"second")
        except ObjectExists:
            return StoreProbe(True, info)
        return StoreProbe(False, info)
    finally:
        with suppress(TierstateError):
            store.delete(key)


def probe_at_start(store: ObjectStore, listener: Listener) -> StoreProbe | None:
    """Notify the listener if the store ignores the condition. Return None if the probe fails: copies fail then too."""
    with suppress(TierstateError):
        probe = probe_store(store)
        if not probe.refuses:
            listener(ConditionalPutIgnored(store.description))
        return probe
    return None


def proof_of(setting: str, info: ObjectInfo) -> str:
    """Return how a trim proves objects like this one, by ``trim.proof``: checksum, or read if the store has none."""
    return setting if info.crc32c is not None else "read"


class StoreWatch(AnswerWatch):
    """Sends a HEAD of an object that never exists: every 15 seconds, or every 3 if the store does not answer.

    ``ask`` does more than that.
    """

    def __init__(self, store: ObjectStore, clock: Clock, ask: Callable[[], object] | None = None) -> None:
        def head() -> None:
            with suppress(ObjectNotFound):
                store.head(NEVER_THERE)

        silent = f"the store does not answer. store={store.description}"
        super().__init__(ask or head, silent, clock, every_s=15.0, again_s=3.0, timeout_s=TIMEOUT_S)

    def run(self, stop: threading.Event) -> None:
        go_round("store watch", stop, self.look, self.pause_s)
