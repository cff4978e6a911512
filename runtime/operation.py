"""An operation: a generator that yields the name of each irreversible step before taking it.

A runner that stops consuming before step k is a crash before step k, so crash points are enumerated from the code, not
sampled. An operation handles its own failures (an exception inside it). Nothing handles the death of its process: every
later state must be one that some live set explains.
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
    """Take every step, none once ``stop`` is set. Return the result, None if stopped. Errors pass through."""
    while True:
        try:
            next(operation)
        except StopIteration as done:
            result: R = done.value
            return result
        if stop is not None and stop.is_set():
            operation.close()
            return None
