"""Bounded thread pools: the only place where the event loop calls blocking code.

A pool runs a fixed number of calls at a time, queues a fixed number of calls, and refuses the rest. Each kind of call
has its own pool, so that a scan of the remote tier never delays a local read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..state.errors import Throttled, Unavailable

R = TypeVar("R")
WAITING_PER_THREAD = 16


class Pool:
    """A pool that runs ``size`` calls at a time. Threads start when first needed."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.admitted = 0
        """Calls that run or wait."""
        self._most = size * (1 + WAITING_PER_THREAD)
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=name)
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], R], *, goes_on: bool = False) -> R:
        """Return the result of ``call``. Raises Throttled if too many calls wait, and Unavailable after `close`.

        A call that is cancelled before it begins never runs. ``goes_on``: the call continues an answer that has begun;
        it is never refused.
        """
        with self._lock:
            if self.admitted >= self._most and not goes_on:
                raise Throttled("too many calls are waiting", pool=self.name)
            self.admitted += 1
        try:
            future = self._executor.submit(call)
        except RuntimeError:  # shut down
            self._over()
            raise Unavailable("the process is stopping") from None
        future.add_done_callback(self._over)
        try:
            return await asyncio.wrap_future(future)
        finally:  # else a cancelled task keeps the result, in a reference cycle that Python collects much later
            del future

    def _over(self, future: Future[Any] | None = None) -> None:
        with self._lock:
            self.admitted -= 1

    def close(self) -> None:
        """Cancel the waiting calls, and wait until the running calls end."""
        self._executor.shutdown(wait=True, cancel_futures=True)
