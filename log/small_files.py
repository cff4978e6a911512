"""The small files beside a log (`partition.metadata`, `leader-epoch-checkpoint`): read whole, again once changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

PIECE_BYTES = 65_536
Stamp = tuple[int, int, int]
"""Inode, time of change (ns) and size: the broker replaces these files, it never writes into one."""

V = TypeVar("V")


def stamp_of(file: str) -> Stamp | None:
    """None when there is no such file. Raises OSError."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def whole(file: str) -> bytes:
    """Of a small file. An agent reads thousands of them a minute: Python's own files cost four times as much."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [piece := os.read(descriptor, PIECE_BYTES)]
        while len(piece) == PIECE_BYTES:
            pieces.append(piece := os.read(descriptor, PIECE_BYTES))
    finally:
        os.close(descriptor)
    return b"".join(pieces)


class SmallFiles(Generic[V]):
    """What files of one kind say. A look at one that stayed the same is a `stat`. Thread-safe; holds what it was asked
    for until `keep` is told what still counts.
    """

    def __init__(self, parse: Callable[[bytes, str], V]) -> None:
        """``parse``: of a file's bytes and name."""
        self._parse = parse
        self._known: dict[str, tuple[Stamp, V]] = {}

    def get(self, file: str) -> V | None:
        """None when there is no such file. Raises what ``parse`` raises, and OSError."""
        stamp = stamp_of(file)  # before it is read: one that is replaced meanwhile is read again
        if stamp is None:
            return None
        known = self._known.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            value = self._parse(whole(file), file)
        except FileNotFoundError:
            return None
        self._known[file] = (stamp, value)
        return value

    def keep(self, files: Collection[str]) -> None:
        """Forget all others."""
        for file in [file for file in self._known.copy() if file not in files]:
            self._known.pop(file, None)
