"""Jobs that run in any process, and what runs them. Imports little: processes start while the rest is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from ..state.errors import TierstateError


class AnyJob(Protocol):
    """Plain values that describe a job. ``made`` does it, in any process; raises errors of tierstate."""

    @property
    def number(self) -> int: ...

    def made(self) -> Any: ...


AnyRun: TypeAlias = Callable[[Sequence[AnyJob]], Iterator[tuple[int, Any]]]
"""A `Run` of any jobs: the outcome of a job is what it `made`, or an error of tierstate."""


def do(job: AnyJob) -> tuple[int, Any]:
    """Do a job, in any process. Return its number and its outcome."""
    try:
        return job.number, job.made()
    except TierstateError as error:
        return job.number, error


def here(jobs: Sequence[AnyJob]) -> Iterator[tuple[int, Any]]:
    """Yield the outcomes of jobs done in this process, one after another: an `AnyRun`."""
    yield from map(do, jobs)
