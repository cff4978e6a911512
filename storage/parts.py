"""Parts of an upload on their way: large, so nobody holds one that was handed on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def drained(begin: list[bytearray], rest: Iterable[bytearray]) -> Iterator[bytearray]:
    """``begin``, which is emptied, then ``rest``."""
    while begin:
        yield begin.pop(0)
    yield from rest
