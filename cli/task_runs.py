"""Choose where the tasks of a command run: in processes of this machine, or in a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..state.errors import MissingExtra

if TYPE_CHECKING:
    from ..lake.runs import Run


def by_processes(count: int, *needs: str) -> Run:
    """Return a function that runs tasks in ``count`` processes. For ``needs``, see `lake.runs.in_processes`."""
    from ..lake.runs import in_processes

    return in_processes(count, *needs)


def by_spark(command: str) -> Run:
    """Return a function that runs tasks in a Spark job. Without pyspark, raises MissingExtra with ``command``."""
    try:
        from ..lake.runs import by_spark as by_session
        from ..spark.sessions import session
    except ImportError as error:
        raise MissingExtra("spark", command) from error
    return by_session(session)
