"""Stores that wrap another: one gives signs of life (`watchdog.py`), one runs a check before it changes the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast

from ..runtime.watchdog import alive
from .object_store import DEFAULT_PART_BYTES, Data, ObjectStore


def living(store: ObjectStore) -> ObjectStore:
    """Return a store with the same promises, where each answer and each piece is a sign of life of the calling thread.

    Calls are forwarded by name, so no method can be forgotten.
    """
    return cast(ObjectStore, _LivingStore(store))


class _LivingStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        return _living(attribute) if callable(attribute) else attribute


def _living(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``ask`` with a sign of life after every answer or error, and for every piece that is sent or arrives."""

    def watched(*arguments: Any, **named: Any) -> Any:
        try:
            answer = ask(*map(_passed, arguments), **named)
        finally:
            alive()
        return _passed(answer)

    return watched


def _passed(each: Any) -> Any:
    many = isinstance(each, Iterable) and not isinstance(each, str | bytes | bytearray | memoryview)
    return _one_by_one(each) if many else each


def _one_by_one(pieces: Iterable[Any]) -> Iterator[Any]:
    def one(piece: Any) -> Any:
        alive()
        return piece

    yield from map(one, pieces)  # no variable here keeps a piece while the next one is made


class Proof(Protocol):
    """The check: it raises Unavailable if the bucket must not be changed now.

    ``harms`` is True if the step can harm another cluster: it removes or replaces an object, or takes its key.
    """

    def __call__(self, *, harms: bool) -> None: ...


def claimed(store: ObjectStore, proof: Proof, shared: str) -> ObjectStore:
    """Return a store with the same promises that calls ``proof`` before changes. Reads are forwarded unchanged.

    This one place is enough, because every change of the bucket goes through a store.
    ``shared`` is a key prefix. Keys with it are the same in a copy of the cluster. All other keys are random.
    """
    return cast(ObjectStore, _ClaimedStore(store, proof, shared))


class _ClaimedStore:
    def __init__(self, store: ObjectStore, proof: Proof, shared: str) -> None:
        self._store, self._proof, self._shared = store, proof, shared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._proof(harms=key.startswith(self._shared))
        self._store.put_if_absent(key, data)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        self._proof(harms=key.startswith(self._shared))
        return self._store.put_stream(key, pieces, part_bytes=part_bytes)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        self._proof(harms=True)
        return self._store.replace_if_same(key, data, previous)

    def delete(self, key: str) -> None:
        self._proof(harms=True)
        self._store.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._store.delete_many(self._each(keys))

    def _each(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            self._proof(harms=True)
            yield key

    def abort_upload(self, upload: Any) -> None:
        self._proof(harms=True)
        self._store.abort_upload(upload)
