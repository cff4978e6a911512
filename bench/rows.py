"""One line of the benchmark table, and how a median is taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

RUNS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """``peer`` None: nothing comparable was run. The ratio is ours to the peer's; the unit says which way is better."""

    what: str
    ours: float
    unit: str
    peer: float | None = None
    peer_is: str = ""
    goal: str = ""


def rate(work: Callable[[], float], runs: int = RUNS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return units a second: ``work`` returns how many units it did; the median of ``runs`` after one warm-up."""
    work()
    rates = []
    for _ in range(runs):
        began = clock()
        units = work()
        rates.append(units / (clock() - began))
    return statistics.median(rates)
