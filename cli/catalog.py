"""The catalog of tables that a command works on."""

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
    """Open the catalog of the settings; make the embedded one if ``new``, else raise InvalidRequest without it.

    Raises MissingExtra where its packages are not installed.
    """
    with imported_lake():
        from ..lake.table_open import open_catalog
    with open_catalog(context.settings, new=new) as catalog:
        yield catalog


@contextmanager
def imported_lake() -> Iterator[None]:
    """Raise MissingExtra where an import of the block needs packages that are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyiceberg", "sqlalchemy", *MODULES):
            raise MissingExtra("lake", "table") from error
        raise
