"""Open the catalog of tables for a command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..runtime.columns_extra import MODULES
from ..state.errors import MissingExtra
from .context import Context

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def imported_lake() -> Iterator[None]:
    """Raise MissingExtra if an import in the ``with`` block needs a package of the extra that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyiceberg", "sqlalchemy", *MODULES):
            raise MissingExtra("lake", "table") from error
        raise
