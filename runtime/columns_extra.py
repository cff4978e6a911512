"""The extra ``columns``: numba and pyarrow, which turn records into columns.

An agent and a proxy copy and serve whole batches, and need neither.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from ..state.errors import MissingExtra

MODULES = ("numba", "llvmlite", "pyarrow")


@cache
def columns_installed() -> bool:
    """Return whether the extra is installed. Nothing of it is imported to find out."""
    return all(find_spec(name) is not None for name in MODULES)


def require_columns(needed_for: str) -> None:
    """Raise MissingExtra, which names ``needed_for`` and the extra, unless the extra is installed."""
    if not columns_installed():
        raise MissingExtra("columns", needed_for)


def columns_missing(error: ModuleNotFoundError, needed_for: str) -> MissingExtra | None:
    """Return the error that `require_columns` raises if ``error`` names a module of the extra, else None."""
    return MissingExtra("columns", needed_for) if (error.name or "").partition(".")[0] in MODULES else None
