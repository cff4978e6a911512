"""Runs a few tasks at a time and yields their results in order, to download a long range in parallel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")

Work = Callable[[threading.Event], T]
"""A task. It checks the event now and then, and raises `Stopped` when the event is set."""


class Stopped(Exception):
    """The caller no longer needs the result. The task ends unfinished, and this is no error to report."""


def in_order(work: Iterable[Work[T]], parallel: int) -> Generator[T, None, None]:
    """Yield the results in order. At most ``parallel`` tasks run or have a result that the caller has not taken.

    An error is raised after the results before it, and stops later tasks. No thread remains when this generator ends,
    also by an error or if the caller closes it early. With one task or ``parallel`` 1, the caller's thread does it all.
    """
    stop = threading.Event()
    waiting = iter(work)
    first = [*islice(waiting, min(parallel, 2))]
    if len(first) < 2:
        for task in chain(first, waiting):
            yield task(stop)
        return
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="ranged-read")
    try:
        begun = chain(first, islice(waiting, parallel - 2))
        running: deque[Future[T]] = deque(pool.submit(task, stop) for task in begun)
        while running:
            result = running.popleft().result()
            following = next(waiting, None)
            if following is not None:
                running.append(pool.submit(following, stop))
            yield result
            del result
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
