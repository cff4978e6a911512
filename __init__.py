"""tierstate: tiered storage for any Apache Kafka cluster, without touching the broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumer.connect import connect, read_records
    from .consumer.tiered_consumer import TieredConsumer
    from .state import errors
    from .state.view import TierView

    __version__: str

__all__ = ["TierView", "TieredConsumer", "connect", "errors", "read_records"]

_HOMES = {
    "TierView": "tierstate.state.view",
    "TieredConsumer": "tierstate.consumer.tiered_consumer",
    "connect": "tierstate.consumer.connect",
    "read_records": "tierstate.consumer.connect",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a core install starts fast and misses no extra."""
    if name == "__version__":
        return import_module("importlib.metadata").version("tierstate")
    if name == "errors":
        return import_module("tierstate.state.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'tierstate' has no attribute {name!r}")
    if name != "TierView":
        import_module("tierstate.runtime.extras").require_columns(f"tierstate.{name}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names and nothing else."""
    return sorted([*__all__, "__version__", "__doc__"])
