"""Bounded pools: the only place where the event loop meets blocking code.

A pool runs so many calls at a time, lets so many more wait, and refuses the rest. Each kind of call has its own pool,
so a cold scan never delays a hot read.
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
    """``size`` calls run at a time. Threads start when first needed."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.admitted = 0
        """Calls that run or wait."""
        self._most = size * (1 + WAITING_PER_THREAD)
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=name)
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], R], *, goes_on: bool = False) -> R:
        """Run a call. Raises Throttled when too many wait. After a cancellation a call that has not begun never begins.

        ``goes_on``: part of an answer that has begun, which is never refused.
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
        finally:  # else a cancelled task keeps the result of the call, in a cycle that Python collects much later
            del future

    def _over(self, future: Future[Any] | None = None) -> None:
        with self._lock:
            self.admitted -= 1

    def close(self) -> None:
        """Cancel the calls that wait, and wait for those that run."""
        self._executor.shutdown(wait=True, cancel_futures=True)
