"""Checks whether a store honours the condition of a conditional put, once, when an agent starts."""

from __future__ import annotations

from contextlib import suppress

from ..runtime.id_source import IdSource, RandomIds
from ..runtime.listener import ConditionalPutIgnored, Listener
from ..state.errors import ObjectExists, TierstateError
from ..state.ids import FactId
from .object_store import ObjectStore, ObjectWriter

PROBES = "_tierstate/check/"
"""Where probes are written, below the store's URL."""


def probe_conditional_put(store: ObjectWriter, ids: IdSource | None = None) -> bool:
    """Put one object of a few bytes twice and delete it. Return False when the store accepted the second put too.

    Costs two PUTs, one DELETE and, where the condition is honoured, one HEAD. `tierstate certify` checks streams and
    racing writers. Raises what `put_if_absent` raises; the probe is removed in any case, if possible.
    """
    key = f"{PROBES}{FactId.of((ids or RandomIds()).uuid())}"
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
    """Notify the listener if the store ignores the condition. If the probe fails, failing copies will show that."""
    with suppress(TierstateError):
        if not probe_conditional_put(store):
            listener(ConditionalPutIgnored(store.description))
