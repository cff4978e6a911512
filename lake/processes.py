"""Tasks in processes of our own, as many as processors: decoding and encoding fill one each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from ..state.errors import Unavailable
from .jobs import Job, Outcome, Run, do, here

WAITING = 2
"""Jobs that are handed to a process ahead of time."""


def in_processes(count: int) -> Run:
    """A `Run`; one process is this one. Raises Unavailable when one of them was killed."""
    if count == 1:
        return here

    def run(jobs: list[Job]) -> Iterator[tuple[int, Outcome]]:
        # not forked: this process has threads and connections, which do not survive that
        pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        left, running = iter(jobs), set[Future[tuple[int, Outcome]]]()
        try:
            while True:
                for job in left:
                    running.add(pool.submit(do, job))
                    if len(running) == count * WAITING:
                        break
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    yield each.result()
        except BrokenProcessPool as error:
            raise Unavailable(
                "a process of the export was killed (by the kernel, when memory is short); what is committed stays, and"
                " the same command goes on from there",
                processes=count,
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    return run
