"""Shrink a failing history to few steps that still break a promise."""

from __future__ import annotations

from collections.abc import Callable

Fails = Callable[[list[int]], str | None]
"""Returns what breaks if only these steps happen, or None."""


def shrink(steps: list[int], fails: Fails, tries: int = 400) -> list[int]:
    """Leave out ever smaller blocks of steps as long as something still breaks (delta debugging)."""
    block = max(1, len(steps) // 2)
    while tries > 0:
        at, smaller = 0, False
        while at < len(steps) and tries > 0:
            tries -= 1
            rest = steps[:at] + steps[at + block :]
            if rest and fails(rest) is not None:
                steps, smaller = rest, True
            else:
                at += block
        if block == 1 and not smaller:
            break
        block = max(1, block // 2)
    return steps
