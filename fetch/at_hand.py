"""A read of the remote tier that asks nobody and waits for nothing, planned once for many who ask for the same.

    believed by      the topic's name, the view and the bounds that reads are routed by, for a second (`logical.py`)
    the bytes        lie in the chunk cache, their CRCs were looked at there

Whoever has one asks it each time: a log that was trimmed, expired, grown or made anew is routed by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .piece import Fetched


@dataclass(frozen=True, slots=True, eq=False)
class AtHand:
    """``piece``: all of it but its data, which is ``size`` bytes."""

    piece: Fetched
    size: int
    holds: Callable[[], bool]
    """Whether a read is routed so now."""
    data: Callable[[], Sequence[bytes | memoryview] | None]
    """Views of what the chunk cache has, not to be held while anybody is waited for; None: it has not all of it."""
