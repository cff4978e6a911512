"""Checks of one object store: it gives back what it took, and obeys conditional puts."""

from __future__ import annotations

from ...runtime.id_source import RandomIds
from ...runtime.settings import Settings
from ...state.errors import InvalidRequest
from ...state.ids import FactId
from ...storage.object_store import ObjectStore
from ...storage.probe import PROBES, probe_store, proof_of


def proof_in(store: ObjectStore, settings: Settings) -> str:
    """Write, read and delete an object. Return the store's URL and how a trim proves its objects (`proof_of`)."""
    key = f"{PROBES}{FactId.of(RandomIds().uuid())}"
    try:
        store.put_if_absent(key, b"tierstate check")
        if store.get(key) != b"tierstate check":
            raise InvalidRequest("the store gave back other bytes than it took", object_key=key)
        compared = proof_of(settings.trim.proof, store.head(key)) == "checksum"
        proven = "compared by its checksums" if compared else "read back"
        return f"{store.description}; before a trim objects are {proven}"
    finally:
        store.delete(key)


def condition_of(store: ObjectStore) -> str:
    """Return whether the store obeys the condition of a conditional put."""
    if probe_store(store).refuses:
        return "honoured"
    return "ignored: writers are kept apart by their keys alone, which are never reused; see tierstate certify"
