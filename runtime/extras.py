"""Extras, which add packages. The extra ``columns`` (numba and pyarrow) turns records into columns.

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
    """Raise MissingExtra, which names ``needed_for`` and the extra, unless the extra is installed."""
    if not columns_installed():
        raise MissingExtra("columns", needed_for)


@contextmanager
def importing(extra: str, needed_for: str, *modules: str) -> Iterator[None]:
    """Raise MissingExtra if the block fails because one of ``modules``, or of the extra ``columns``, is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in (*modules, *MODULES):
            raise MissingExtra(extra, needed_for) from error
        raise
