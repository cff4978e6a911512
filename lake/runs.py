"""Runs the jobs of an export or a table: in this process, in processes of this machine, or in executors of Spark.

Processes are forked from a server process that has loaded the modules they need, and has no connections. The server
starts to load when a `Run` is made, before this process loads the modules that it plans with. So this module imports
little. When tasks are planned the server is ready, and starting a process takes almost no time. Each process ends when
its parent ends, for whatever reason.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from multiprocessing.forkserver import ensure_running
from typing import TYPE_CHECKING, Any, TypeAlias

from ..state.errors import TierstateError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .jobs import Job

Run: TypeAlias = "Callable[[Sequence[Job]], Iterator[tuple[int, Any]]]"
"""Does jobs, several at a time, and yields the number and outcome of each job as it ends. An error of tierstate is an
outcome. Any other error is raised, and ends the other jobs. Closing the generator ends them too.
"""

_NEEDED = (
    "lake.export_plan",
    "lake.export_task",
    "lake.export_work",
    "lake.task_check",
    "fetch.split",
    "fetch.local",
    "broker.open",
    "log.decode",
    "log.loaded_kernels",
    "storage.directory",
)
LOADED = tuple(f"{__package__.rpartition('.')[0]}.{name}" for name in _NEEDED)
"""The modules that every task needs, loaded once by the server that forks processes. None of them starts a thread."""


def do(job: Job) -> tuple[int, Any]:
    """Do a job, in any process. Return its number and its outcome."""
    try:
        return job.number, job.made()
    except TierstateError as error:
        return job.number, error


def here(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
    """Do jobs in this process, one after another, and yield their outcomes. This function is a `Run`."""
    yield from map(do, jobs)


def in_processes(count: int, *needs: str) -> Run:
    """Return a `Run` with ``count`` processes; 1 means this process. ``needs``: modules to load beyond `LOADED`.

    It raises Unavailable if one of the processes was killed.
    """
    if count == 1:
        return here
    # not forked from here: this process has threads and connections, which do not survive that
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LOADED, *(f"{__package__}.{name}" for name in needs)])
    ensure_running()

    def run(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)
        try:
            for each in as_completed([pool.submit(do, job) for job in jobs]):
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


def by_spark(session: Callable[[], SparkSession]) -> Run:
    """Return a `Run` that uses the session's executors. It yields outcomes when the last task has ended.

    Tasks read and write directly. Only jobs and their outcomes go through Spark.
    """

    def run(jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        if not jobs:
            return
        # one Spark task each: Spark repeats a whole task when an executor is lost
        yield from session().sparkContext.parallelize(jobs, len(jobs)).map(do).collect()

    return run
