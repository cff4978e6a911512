"""tierstate: tiered storage for any Apache Kafka cluster, without touching the broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumer.records import read_records
    from .consumer.tiered_consumer import TieredConsumer
    from .state.view import TierView

__all__ = ["TierView", "TieredConsumer", "read_records"]

_HOMES = {
    "TierView": "tierstate.state.view",
    "TieredConsumer": "tierstate.consumer.tiered_consumer",
    "read_records": "tierstate.consumer.records",
}


def __getattr__(name: str) -> object:
    """Imports what is asked for, when it is asked for: a core install starts fast and misses no extra."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tierstate' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
