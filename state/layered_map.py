"""A mapping for many views that share most entries: a view after one more fact copies only a few entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LayeredMap(Mapping[K, V]):
    """An immutable mapping. ``changes`` override ``base``; None removes an entry. Neither argument may change later."""

    __slots__ = ("_base", "_changes", "_len")

    def __init__(self, base: Mapping[K, V], changes: Mapping[K, V | None]) -> None:
        self._base, self._changes = base, changes
        added = sum(value is not None for value in changes.values())
        self._len = len(base) + added - sum(key in base for key in changes)

    def __getitem__(self, key: K) -> V:
        if key not in self._changes:
            return self._base[key]
        value = self._changes[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        """Iterate in the order of a dict in which each changed entry was deleted and then inserted again."""
        yield from (key for key in self._base if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not None)

    def __len__(self) -> int:
        return self._len


class LayeredTable(Generic[K, V]):
    """A table whose `LayeredMap` snapshots do not change when entries are put. Not thread-safe.

    With n entries, one put and one snapshot cost in the order of the square root of n.
    """

    __slots__ = ("_base", "_changes")

    def __init__(self) -> None:
        self._base: dict[K, V] = {}
        self._changes: dict[K, V | None] = {}

    def put(self, key: K, value: V | None) -> V | None:
        """Set the value of ``key`` and return the previous one. A ``value`` of None removes the entry."""
        before = self._changes.pop(key) if key in self._changes else self._base.get(key)
        if value is not None or key in self._base:
            self._changes[key] = value
        if len(self._changes) ** 2 > len(self._base):
            self._base, self._changes = dict(self.shown()), {}
        return before

    def shown(self) -> LayeredMap[K, V]:
        """Return the entries as they are now."""
        return LayeredMap(self._base, dict(self._changes))
