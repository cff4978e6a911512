"""Another store, which asks for a proof right before each step that changes the bucket.*

This is the one place: whatever changes the bucket goes through a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

from .object_store import DEFAULT_PART_BYTES, Data, ObjectStore


class Proof(Protocol):
    """Raises Unavailable if the bucket must not be changed now. ``deletes``: the step removes or replaces an object."""

    def __call__(self, *, deletes: bool) -> None: ...


def claimed(store: ObjectStore, proof: Proof) -> ObjectStore:
    """The same promises; reads are passed on as they are."""
    return cast(ObjectStore, _ClaimedStore(store, proof))


class _ClaimedStore:
    def __init__(self, store: ObjectStore, proof: Proof) -> None:
        self._store, self._proof = store, proof

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._proof(deletes=False)
        self._store.put_if_absent(key, data)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        self._proof(deletes=False)
        return self._store.put_stream(key, pieces, part_bytes=part_bytes)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        self._proof(deletes=True)
        return self._store.replace_if_same(key, data, previous)

    def delete(self, key: str) -> None:
        self._proof(deletes=True)
        self._store.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._store.delete_many(self._each(keys))

    def _each(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            self._proof(deletes=True)
            yield key

    def abort_upload(self, upload: Any) -> None:
        self._proof(deletes=True)
        self._store.abort_upload(upload)
