"""Parts of an upload on their way: large, so nobody holds one that was handed on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .object_store import Data


def parts_of(pieces: Iterable[Data], part_bytes: int) -> Iterator[bytearray]:
    """Pieces of any size re-cut into parts of ``part_bytes``, the last one shorter; each a buffer of its own.

    The first part grows, for there may be little to come. The others have their size from the start: buffers that grow
    leave holes in the heap that the next ones do not fit into, 10 MiB and more of them.
    """
    part, filled = bytearray(), 0
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while rest:
            taken = rest[: part_bytes - filled]
            part[filled : filled + len(taken)] = taken
            filled += len(taken)
            rest = rest[len(taken) :]
            if filled == part_bytes:
                yield part
                del part
                part, filled = bytearray(part_bytes), 0
    if filled:
        del part[filled:]
        yield part


def drained(begin: list[bytearray], rest: Iterable[bytearray]) -> Iterator[bytearray]:
    """``begin``, which is emptied, then ``rest``."""
    while begin:
        yield begin.pop(0)
    yield from rest
