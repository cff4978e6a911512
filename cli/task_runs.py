"""Who does the tasks of a command: processes of this machine, or a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..state.errors import MissingExtra

if TYPE_CHECKING:
    from ..lake.any_job import AnyRun


def by_processes(count: int, *needs: str) -> AnyRun:
    """``needs``: as `lake.processes.in_processes`."""
    from ..lake.processes import in_processes

    return in_processes(count, *needs)


def by_spark(command: str) -> AnyRun:
    """Wherever ``spark-submit`` says. ``command``: that needs it, when pyspark is not here."""
    try:
        from ..lake.spark_job import by_spark as by_session
        from ..spark.sessions import session
    except ImportError as error:
        raise MissingExtra("spark", command) from error
    return by_session(session)
