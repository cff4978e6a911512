"""Work done a few at a time, its results handed out in order: how a long range is downloaded in parallel."""

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
    """Who asked has left; the work is not done, and nobody is told of this."""


def in_order(work: Iterable[Work[T]], parallel: int) -> Generator[T, None, None]:
    """The results, in order; ``parallel`` of them in the making or waiting, one in the taker's hands.

    An error comes after the results before it and stops the work behind it. However this ends (an error, a taker who
    closes it early), no thread of it is left. With one at a time, or one in all, no thread is made.
    """
    stop = threading.Event()
    waiting = iter(work)
    first = next(waiting, None)
    second = next(waiting, None) if first is not None and parallel > 1 else None
    if first is None:
        return
    if second is None:
        yield first(stop)
        for each in waiting:
            yield each(stop)
        return
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="ranged-read")
    try:
        running: deque[Future[T]] = deque((pool.submit(first, stop), pool.submit(second, stop)))
        running.extend(pool.submit(each, stop) for each in islice(waiting, parallel - 2))
        while running:
            found = running.popleft().result()
            following = next(waiting, None)
            if following is not None:
                running.append(pool.submit(following, stop))
            yield found
            del found
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
