"""An operation: a generator that yields the name of each irreversible step before taking it.

A runner that stops before step k simulates a crash before step k, so tests enumerate all crash points from the code.
An operation handles the exceptions inside it. Nothing handles the death of its process: the state that a crash leaves
must be one that the facts of the tier-state topic (the live set) explain.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TypeVar, overload

R = TypeVar("R")
Operation = Generator[str, None, R]


@overload
def run(operation: Operation[R]) -> R: ...
@overload
def run(operation: Operation[R], stop: threading.Event) -> R | None: ...
def run(operation: Operation[R], stop: threading.Event | None = None) -> R | None:
    """Run all steps and return the result. Once ``stop`` is set, take no further step and return None."""
    while True:
        try:
            next(operation)
        except StopIteration as done:
            result: R = done.value
            return result
        if stop is not None and stop.is_set():
            operation.close()
            return None
