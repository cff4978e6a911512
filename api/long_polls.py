"""Long polls that hold no thread. One request for a partition's end serves all calls that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..state.offsets import Offset
from ..state.routing import Isolation

LOOK_EVERY_S = 0.1
"""Seconds between two requests for an end, and so the most that a long poll delays a record."""

Place = tuple[str, int, Isolation]


@dataclass(eq=False, slots=True)
class _Watch:
    """The wait for one place. ``grown`` is set and replaced at every request, so a waiter sees each result once."""

    grown: asyncio.Event = field(default_factory=asyncio.Event)
    end: Offset = field(default=Offset(-1))
    failure: Exception | None = None
    waiters: int = 0
    task: asyncio.Task[None] | None = None


class LongPolls:
    """Waits for partitions to grow. ``end_of`` requests an end; it never runs twice at once for the same place."""

    def __init__(self, end_of: Callable[[Place], Awaitable[Offset]]) -> None:
        self._end_of = end_of
        self._watches: dict[Place, _Watch] = {}
        self._closed = False

    def close(self) -> None:
        """End all waits: a stopping gateway answers at once. Call it on the event loop."""
        self._closed = True
        for watch in self._watches.values():
            watch.grown.set()

    async def wait_beyond(self, place: Place, offset: int, seconds: float) -> None:
        """Wait until the end of the log is above ``offset``, at most ``seconds``. Raises an error of ``end_of``."""
        if self._closed:
            return
        watch = self._watches.setdefault(place, _Watch())
        watch.waiters += 1
        if watch.task is None:
            watch.task = asyncio.create_task(self._look(place, watch))
        try:
            async with asyncio.timeout(seconds):
                while watch.end <= offset and not self._closed:
                    await watch.grown.wait()
                    if watch.failure is not None:
                        raise watch.failure
        except TimeoutError:
            return
        finally:
            watch.waiters -= 1
            if watch.waiters == 0:
                watch.task.cancel()
                if self._watches.get(place) is watch:
                    del self._watches[place]

    async def _look(self, place: Place, watch: _Watch) -> None:
        while True:
            try:
                watch.end = await self._end_of(place)
            except Exception as error:  # each waiting call raises it
                watch.failure = error
            watch.grown.set()
            watch.grown = asyncio.Event()
            if watch.failure is not None:
                # the next call begins its own watch
                if self._watches.get(place) is watch:
                    del self._watches[place]
                return
            await asyncio.sleep(LOOK_EVERY_S)
