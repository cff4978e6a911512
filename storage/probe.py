"""Does a store honour the condition of a conditional put? Asked once, when an agent starts."""

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
    """Puts one object of a few bytes twice and deletes it: False when the second put was taken, too.

    Costs two PUTs, one DELETE and, where the condition is honoured, one HEAD. What streams and racing writers get is
    for `tierstate certify`. Raises what `put_if_absent` raises; the probe is removed in any case, if it can be.
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
    """Tells the listener of a store that ignores the condition; of one that cannot be asked, failing copies tell."""
    with suppress(TierstateError):
        if not probe_conditional_put(store):
            listener(ConditionalPutIgnored(store.description))
