"""Wraps a store so that each answer and each piece is a sign of life of the calling thread (`watchdog.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ..runtime.watchdog import alive
from .object_store import ObjectStore


def living(store: ObjectStore) -> ObjectStore:
    """Return a store with exactly the same promises. Calls are forwarded by name, so no method can be forgotten."""
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
