"""Tasks in processes of our own, as many as processors: decoding and encoding fill one each."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from ..state.errors import Unavailable
from .jobs import AnyJob, AnyRun, do, here

WAITING = 2
"""Jobs that are handed to a process ahead of time."""


def in_processes(count: int) -> AnyRun:
    """One process is this one. Raises Unavailable when one of them was killed."""
    return here if count == 1 else Processes(count)


class Processes:
    """An `AnyRun`. They start with the first job, wait for those of the next call, and end with this object."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, jobs: Sequence[AnyJob]) -> Iterator[tuple[int, Any]]:
        if self._pool is None:
            # not forked: this process has threads and connections, which do not survive that
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, mp_context=context, initializer=_end_with_parent)
        left, running = iter(jobs), set[Future[tuple[int, Any]]]()
        try:
            while True:
                for job in left:
                    running.add(self._pool.submit(do, job))
                    if len(running) == self._count * WAITING:
                        break
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    yield each.result()
        except BrokenProcessPool as error:
            self._pool = None
            raise Unavailable(
                "a process that did tasks was killed (by the kernel, when memory is short); what is committed stays,"
                " and the same command goes on from there",
                processes=self._count,
            ) from error
        finally:
            for each in running:
                each.cancel()
            wait(running)  # nobody's task is at work once this is over


def _end_with_parent() -> None:
    """A parent that was killed says nothing, and its queue stays open: a process would wait at it for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def ends() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=ends, daemon=True, name="ends with its parent").start()
