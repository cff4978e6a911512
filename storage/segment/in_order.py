"""Does work a few pieces at a time and yields the results in order, to download a long range in parallel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Work = Callable[[threading.Event], T]
"""One piece of work; it looks at the event now and then, and raises `Stopped` when it is set."""


class Stopped(Exception):
    """The caller has left. The work is not done, and this is not reported."""


def in_order(work: Iterable[Work[T]], parallel: int) -> Generator[T, None, None]:
    """Yield the results in order; ``parallel`` of them are being made or waiting, the caller holds one.

    An error is raised after the results before it and stops the work after it. However this ends (an error, a caller
    that closes it early), none of its threads is left. One result at a time, or one in all, needs no thread.
    """
    stop = threading.Event()
    waiting = iter(work)
    first = next(waiting, None)
    second = next(waiting, None) if first is not None and parallel > 1 else None
    if first is None:
        return
    if second is None:
        yield first(stop)
        for task in waiting:
            yield task(stop)
        return
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="ranged-read")
    try:
        running: deque[Future[T]] = deque((pool.submit(first, stop), pool.submit(second, stop)))
        running.extend(pool.submit(each, stop) for each in islice(waiting, parallel - 2))
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
