"""One guard of production, and what stands in for it when it is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. ``rule``: the rule in the design's words. ``place``: the module and the name that production looks up.

    ``more``: further places that check the same rule right before the operation, with what replaces them. They are
    removed together.
    """

    rule: str
    place: str
    broken: Any
    seed: int | None
    more: tuple[tuple[str, Callable[..., Any]], ...] = ()
    source: str = "disk"
    """Where the agents of the history read logs: ``agent.source``."""
