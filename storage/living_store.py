"""Another store, each of whose answers and pieces is a sign of life of the thread that asked (`watchdog.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ..runtime.watchdog import alive
from .object_store import ObjectStore


def living(store: ObjectStore) -> ObjectStore:
    """The very same promises: it restates none of them, so that none can be forgotten."""
    return cast(ObjectStore, _LivingStore(store))


class _LivingStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _living(found) if callable(found) else found


def _living(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Alive after every answer, also one that is an error, and at every piece that is sent or comes."""

    def asked(*given: Any, **named: Any) -> Any:
        try:
            answer = ask(*map(_passed, given), **named)
        finally:
            alive()
        return _passed(answer)

    return asked


def _passed(each: Any) -> Any:
    many = isinstance(each, Iterable) and not isinstance(each, str | bytes | bytearray | memoryview)
    return _one_by_one(each) if many else each


def _one_by_one(pieces: Iterable[Any]) -> Iterator[Any]:
    def one(piece: Any) -> Any:
        alive()
        return piece

    yield from map(one, pieces)  # no name of ours holds a piece while the next one is made
