"""Stops an operation as a crash would."""

from __future__ import annotations

from typing import Any

from tierstate.runtime.operation import Operation


def run_until(operation: Operation[Any], step: int) -> list[str]:
    """Stop before the ``step``-th step (from 0), as a crash would: nothing of the operation runs after that.

    Return the names of the steps taken; fewer than ``step`` when the operation ended before.
    """
    taken: list[str] = []
    for at, name in enumerate(operation):
        if at == step:
            break
        taken.append(name)
    return taken
