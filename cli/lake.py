"""The catalog of commands on tables and exports, and where their tasks run."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from ..runtime.extras import importing
from .context import Context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..lake.runs import Run
    from ..lake.table_catalog import LakeCatalog

NEEDED = ("kafka.bootstrap.servers", "store.url")
"""Settings that a command needs to compare a table with its topic."""


@contextmanager
def catalog_of(context: Context, *, new: bool = False) -> Iterator[LakeCatalog]:
    """Yield the catalog of the settings. ``new`` creates the embedded catalog if it is missing.

    Raises InvalidRequest if the embedded catalog is missing and not ``new``, MissingExtra if packages are missing.
    """
    with imported_lake():
        from ..lake.table_open import open_catalog
    with open_catalog(context.settings, new=new) as catalog:
        yield catalog


def imported_lake() -> AbstractContextManager[None]:
    """Return a block that raises MissingExtra if an import in it needs a package of the extra."""
    return importing("lake", "table", "pyiceberg", "sqlalchemy")


def by_spark() -> Run:
    """Return a function that runs tasks in a Spark job. Raises MissingExtra without pyspark."""
    from ..lake.runs import by_spark as by_session
    from ..spark.sessions import session

    return by_session(session)
