"""Read and cache the small files next to a log (`partition.metadata`, `leader-epoch-checkpoint`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

PIECE_BYTES = 65_536
Stamp = tuple[int, int, int]
"""Inode, change time (ns) and size. The broker replaces a small file and never writes into the existing one."""

V = TypeVar("V")


def stamp_of(file: str) -> Stamp | None:
    """Return a file's stamp, or None if there is no such file. Raises OSError."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def whole(file: str) -> bytes:
    """Return a small file's content. An agent reads thousands of files a minute; `open` costs four times as much."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [piece := os.read(descriptor, PIECE_BYTES)]
        while len(piece) == PIECE_BYTES:
            pieces.append(piece := os.read(descriptor, PIECE_BYTES))
    finally:
        os.close(descriptor)
    return b"".join(pieces)


class SmallFiles(Generic[V]):
    """Caches the parsed content of files of one kind: an unchanged file costs one `stat`. Thread-safe. The content of
    each requested file is cached until `keep` drops it.
    """

    def __init__(self, parse: Callable[[bytes, str], V]) -> None:
        """``parse`` takes a file's bytes and its name."""
        self._parse = parse
        self._cache: dict[str, tuple[Stamp, V]] = {}

    def get(self, file: str) -> V | None:
        """Return the parsed content, or None if there is no such file. Raises the errors of ``parse``, and OSError."""
        stamp = stamp_of(file)  # before the read: a file replaced during the read is read again
        if stamp is None:
            return None
        cached = self._cache.get(file)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        try:
            value = self._parse(whole(file), file)
        except FileNotFoundError:
            return None
        self._cache[file] = (stamp, value)
        return value

    def keep(self, files: Collection[str]) -> None:
        """Forget all files except these."""
        for file in [file for file in self._cache.copy() if file not in files]:
            self._cache.pop(file, None)
