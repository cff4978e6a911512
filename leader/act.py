"""An act: a generator that yields the name of each irreversible step before taking it.

A runner that stops consuming before step k is a crash before step k, so crash points are enumerated from the code, not
sampled. An act handles its own failures (an exception inside it). Nothing handles the death of its process: every later
state must be one that some live set explains.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TypeVar, overload

R = TypeVar("R")
Act = Generator[str, None, R]


@overload
def run(act: Act[R]) -> R: ...
@overload
def run(act: Act[R], stop: threading.Event) -> R | None: ...
def run(act: Act[R], stop: threading.Event | None = None) -> R | None:
    """Take every step, none once ``stop`` is set. Return the act's result, None if stopped. Its errors pass through."""
    while True:
        try:
            next(act)
        except StopIteration as done:
            result: R = done.value
            return result
        if stop is not None and stop.is_set():
            act.close()
            return None


def run_until(act: Act[R], step: int) -> list[str]:
    """Stop before the ``step``-th step (from 0), as a crash would: nothing of the act runs after that.

    Return the names of the steps taken; fewer than ``step`` when the act ended before.
    """
    taken: list[str] = []
    for at, name in enumerate(act):
        if at == step:
            break
        taken.append(name)
    return taken
