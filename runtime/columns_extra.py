"""The extra ``columns``: numba and pyarrow, which turn records into columns.

An agent and a proxy copy and serve whole batches, and need neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from ..state.errors import MissingExtra

MODULES = ("numba", "llvmlite", "pyarrow")


@cache
def columns_installed() -> bool:
    """Return whether the extra is installed. Nothing of it is imported to find out."""
    return all(find_spec(name) is not None for name in MODULES)


def require_columns(needed_for: str) -> None:
    """Raise MissingExtra, which names ``needed_for`` and the line for pip, unless the extra is installed."""
    if not columns_installed():
        raise MissingExtra("columns", needed_for)


@contextmanager
def columns_named(needed_for: str) -> Iterator[None]:
    """Raise MissingExtra as `require_columns` does where an import of the extra fails within."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES:
            raise
        raise MissingExtra("columns", needed_for) from error
