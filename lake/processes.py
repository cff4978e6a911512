"""Tasks in processes of this machine, as many as processors: decoding and encoding keep one busy each.

They are forked from a server that has loaded all they need, without a connection of ours, and starts to load when a
`Run` is made: before this process loads what it plans with. By the time that tasks are planned the server is ready,
and starting a process takes almost no time. Each ends with the process that it works for, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from multiprocessing.forkserver import ensure_running
from typing import Any

from ..state.errors import Unavailable
from .any_job import AnyJob, AnyRun, do, here

WAITING = 2
"""How many jobs a process has at a time, running or waiting."""
_NEEDED = (
    "lake.jobs",
    "lake.task",
    "lake.check",
    "fetch.split",
    "fetch.local",
    "broker.open",
    "log.decode",
    "log.loaded_kernels",
    "storage.directory",
)
LOADED = tuple(f"{__package__.rpartition('.')[0]}.{name}" for name in _NEEDED)
"""The modules that every task needs, loaded once by the server that forks processes. None of them starts a thread."""


def in_processes(count: int, *needs: str) -> AnyRun:
    """Return what runs jobs; one process is this one. ``needs``: modules of this package to load besides `LOADED`.

    It raises Unavailable when one of them was killed.
    """
    if count == 1:
        return here
    # not forked from here: this process has threads and connections, which do not survive that
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LOADED, *(f"{__package__}.{name}" for name in needs)])
    ensure_running()

    def run(jobs: Sequence[AnyJob]) -> Iterator[tuple[int, Any]]:
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)
        remaining, running = iter(jobs), set[Future[tuple[int, Any]]]()
        try:
            while True:
                for job in remaining:
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
                "a process that did tasks was killed (by the kernel, when memory is short); what is committed stays,"
                " and the same command goes on from there",
                processes=count,
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    return run


def end_with_parent() -> None:
    """Make a new process end with its parent: a parent that is killed cannot end it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch(sentinel: int) -> None:
        wait_for([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True, name="parent").start()
