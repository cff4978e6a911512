"""Compares two views: yields the facts that differ, in order of tier-state partition and key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..state.offsets import Position
from ..state.view import ViewStore


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A key that is in one view only, or has different positions or values. None: the key is not in that view."""

    tier_partition: int
    key: str
    left: Position | None
    right: Position | None


def differences(left: ViewStore, right: ViewStore, only: int | None = None) -> Iterator[FactDifference]:
    """Yield the differences in tier-state partition ``only``, or in all of them if it is None.

    Memory: one tier-state partition of each view at a time.
    """
    numbers = {number for view in (left, right) for number, _ in view.entries(only)}
    for number in sorted(numbers):
        ours = {entry.key: (entry.position, entry.value) for _, entry in left.entries(number)}
        theirs = {entry.key: (entry.position, entry.value) for _, entry in right.entries(number)}
        for key in sorted(ours.keys() | theirs.keys()):
            one, two = ours.get(key), theirs.get(key)
            if one != two:
                yield FactDifference(number, key, one[0] if one else None, two[0] if two else None)
