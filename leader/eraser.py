"""Erase facts. A tombstone is acknowledged and applied to this process's view before the next one is appended."""

from __future__ import annotations

from ..rules.erase import Erase
from ..runtime.listener import FactsErased, Listener
from ..runtime.operation import Operation
from .expirer import last_look
from .term import TermSession


def erase(session: TermSession, erasure: Erase, listener: Listener) -> Operation[None]:
    """Append the tombstones. Before each, raises Fenced if the term ended or a person must resolve something first."""
    for key in erasure.keys:
        yield "append tombstone"
        last_look(session)
        session.erase(key)
    listener(FactsErased(session.partition, session.name, len(erasure.keys), erasure.why))
