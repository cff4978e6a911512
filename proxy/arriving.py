"""The beginning of a frame that is still arriving, read as `wire.Frame` reads one that is here.

What came is tried, and where it ends too early, tried again with more: nearly always the first time is enough, and
what is read in one go costs a fraction of being waited for field by field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..broker.wire import Frame, Malformed

MOST = 256 * 1024
"""Bytes of one reading. The largest is that of a cluster's brokers."""
R = TypeVar("R")


class Source(Protocol):
    """Bytes of a frame in order."""

    @property
    def left(self) -> int:
        """Of the frame, not taken yet."""
        ...

    def at_hand(self) -> memoryview:
        """Those of them that came. Good until the next wait."""
        ...

    def taken(self, size: int) -> bytes:
        """The first of those at hand."""
        ...

    async def more(self) -> None:
        """Until there is more at hand, of a frame that has more."""
        ...

    async def exactly(self, size: int) -> bytes:
        """Raises Malformed where the frame ends before that."""
        ...


async def begun(source: Source, read: Callable[[Frame], R]) -> tuple[R, bytes]:
    """What ``read`` finds, and the bytes it found it in, which are taken.

    It may be called several times. Raises Malformed where it does with the whole frame, or with `MOST` bytes.
    """
    while True:
        frame = Frame(source.at_hand())
        try:
            found = read(frame)
        except Malformed:
            if frame.end >= min(source.left, MOST):
                raise
            await source.more()
        else:
            return found, source.taken(frame.at)
