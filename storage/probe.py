"""Checks whether a store obeys the condition of a conditional put. An agent does this once, when it starts."""

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
    """Put one small object twice and delete it. Return True if the store refused the second put.

    This costs two PUTs, one DELETE and, if the condition is obeyed, one HEAD. `tierstate certify` also checks streams
    and racing writers. Raises the errors of `put_if_absent`. The object is deleted in any case, if possible.
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
    """Notify the listener if the store ignores the condition. A failing probe is not reported: copies fail then too."""
    with suppress(TierstateError):
        if not probe_conditional_put(store):
            listener(ConditionalPutIgnored(store.description))
