"""Where the tasks of a command run: in processes of this machine, or in a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..state.errors import MissingExtra

if TYPE_CHECKING:
    from ..lake.runs import Run


def by_processes(count: int, *needs: str) -> Run:
    """Return what runs tasks in ``count`` processes. ``needs``: as for `lake.runs.in_processes`."""
    from ..lake.runs import in_processes

    return in_processes(count, *needs)


def by_spark(command: str) -> Run:
    """Return what runs tasks where ``spark-submit`` chooses. ``command`` is named if pyspark is not installed."""
    try:
        from ..lake.runs import by_spark as by_session
        from ..spark.sessions import session
    except ImportError as error:
        raise MissingExtra("spark", command) from error
    return by_session(session)
