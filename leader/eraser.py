"""Erase facts: one tombstone at a time, each acknowledged and applied to this process's view before the next."""

from __future__ import annotations

from ..rules.erase import Erase
from ..runtime.listener import FactsErased, Listener
from .act import Act
from .expirer import last_look
from .term import Reign


def erase(reign: Reign, erasure: Erase, listener: Listener) -> Act[None]:
    """Append the tombstones. Raises Fenced once the term no longer rules or a person must resolve something first."""
    for key in erasure.keys:
        yield "append tombstone"
        last_look(reign)
        reign.erase(key)
    listener(FactsErased(reign.partition, reign.name, len(erasure.keys), erasure.why))
