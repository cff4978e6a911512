"""Parse the beginning of a frame that is still arriving, with functions for `wire.Frame`.

The bytes that have arrived are parsed. If they are too few, parsing starts again after more bytes have arrived. The
first attempt nearly always succeeds. Waiting for each field separately would cost several times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..broker.wire import Frame, Malformed

MOST = 256 * 1024
"""The most bytes that one parse may need. The longest part is the list of a cluster's brokers."""
R = TypeVar("R")


class Source(Protocol):
    """The bytes of one frame, in order."""

    @property
    def left(self) -> int:
        """Return the number of bytes of the frame that were not taken yet."""
        ...

    def at_hand(self) -> memoryview:
        """Return the bytes of the frame that arrived and were not taken. The view is valid until the next wait."""
        ...

    def taken(self, size: int) -> bytes:
        """Take and return the first ``size`` bytes of `at_hand`."""
        ...

    async def more(self) -> None:
        """Wait until more bytes of the frame have arrived. The frame must be incomplete."""
        ...

    async def exactly(self, size: int) -> bytes:
        """Take and return ``size`` bytes. Raises Malformed if the frame ends before that."""
        ...


async def begun(source: Source, read: Callable[[Frame], R]) -> tuple[R, bytes]:
    """Return the result of ``read``, and the bytes that it read. These bytes are taken from ``source``.

    ``read`` may be called several times. Raises Malformed if ``read`` does with the complete frame, or `MOST` bytes.
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
