"""Read the beginning of a frame that is still arriving, in the way `wire.Frame` reads a complete one.

The bytes that have arrived are parsed. If they end too early, parsing starts again once more have arrived. The first
attempt is nearly always enough, and one parse costs a fraction of waiting for each field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..broker.wire import Frame, Malformed

MOST = 256 * 1024
"""Bytes that one parse may need. The largest is the list of a cluster's brokers."""
R = TypeVar("R")


class Source(Protocol):
    """The bytes of one frame, in order."""

    @property
    def left(self) -> int:
        """Return how many bytes of the frame have not been taken yet."""
        ...

    def at_hand(self) -> memoryview:
        """Return the bytes that arrived and were not taken. The view is valid until the next wait."""
        ...

    def taken(self, size: int) -> bytes:
        """Take and return the first ``size`` bytes of `at_hand`."""
        ...

    async def more(self) -> None:
        """Wait until more bytes of the frame have arrived. The frame must have bytes left to arrive."""
        ...

    async def exactly(self, size: int) -> bytes:
        """Take and return ``size`` bytes. Raises Malformed if the frame ends before that."""
        ...


async def begun(source: Source, read: Callable[[Frame], R]) -> tuple[R, bytes]:
    """Return the result of ``read``, and the bytes that it read, which are taken from ``source``.

    ``read`` may be called several times. Raises Malformed if it does with the whole frame, or with `MOST` bytes.
    """
    while True:
        frame = Frame(source.at_hand())
        try:
            result = read(frame)
        except Malformed:
            if frame.end >= min(source.left, MOST):
                raise
            await source.more()
        else:
            return result, source.taken(frame.at)
