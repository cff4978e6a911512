"""Two views compared: the facts that differ, in order of tier-state partition and key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..state.offsets import Position
from ..state.view import ViewStore


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A key that stands in one view only, or at two positions or with two values. None: not there."""

    tier_partition: int
    key: str
    left: Position | None
    right: Position | None


def differences(left: ViewStore, right: ViewStore, only: int | None = None) -> Iterator[FactDifference]:
    """Everything that differs, or what does in ``only`` this tier-state partition.

    Memory: one tier-state partition of each view at a time.
    """
    found = {number for view in (left, right) for number, _ in view.entries(only)}
    for number in sorted(found):
        ours = {entry.key: (entry.position, entry.value) for _, entry in left.entries(number)}
        theirs = {entry.key: (entry.position, entry.value) for _, entry in right.entries(number)}
        for key in sorted(ours.keys() | theirs.keys()):
            one, two = ours.get(key), theirs.get(key)
            if one != two:
                yield FactDifference(number, key, one[0] if one else None, two[0] if two else None)
