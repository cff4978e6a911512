"""Both tiers as a Spark data source."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..runtime.extras import columns_installed
from ..state.errors import MissingExtra

if TYPE_CHECKING:
    from .sessions import session

__all__ = ["session"]

if find_spec("pyspark") is None or not columns_installed():
    raise MissingExtra("spark", "the Spark data source")


def __dir__() -> list[str]:
    """Return the public names and nothing else."""
    return [*__all__, "__doc__"]


def __getattr__(name: str) -> object:
    """Import `session` at its first use: every Spark session imports this package, and few need `session`."""
    if name != "session":
        raise AttributeError(f"module 'tierstate.spark' has no attribute {name!r}")
    from .sessions import session

    return session
