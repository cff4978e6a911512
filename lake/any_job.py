"""Jobs that run in whatever process, and who runs them. It loads nothing: processes start while the rest is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from ..state.errors import TierstateError


class AnyJob(Protocol):
    """Plain values that say what is to be done. ``made``: does it, in whatever process; raises errors of ours."""

    @property
    def number(self) -> int: ...

    def made(self) -> Any: ...


AnyRun: TypeAlias = Callable[[Sequence[AnyJob]], Iterator[tuple[int, Any]]]
"""A `Run` of any jobs: what comes of one is what it `made`, or an error of ours."""


def do(job: AnyJob) -> tuple[int, Any]:
    """In whatever process."""
    try:
        return job.number, job.made()
    except TierstateError as error:
        return job.number, error


def here(jobs: Sequence[AnyJob]) -> Iterator[tuple[int, Any]]:
    """An `AnyRun` in this process, one after another."""
    yield from map(do, jobs)
