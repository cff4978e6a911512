"""Read a segment's index files. All entries have the same size and increase; Kafka may preallocate zeros after them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ..state.errors import CorruptData

E = TypeVar("E")


def index_entries(
    data: bytes,
    form: struct.Struct,
    meaning: Callable[[int, int], E | None],
    increases: Callable[[E, E], bool],
    what: str,
    source: str,
) -> Iterator[E]:
    """Yield the entries one by one, because all entries of 1 GiB of log may take 30 MiB as objects.

    ``meaning`` returns the entry of two numbers, or None if a number is wrongly negative. ``increases(last, entry)``
    returns whether ``entry`` may follow ``last``. Raises CorruptData with the name of the index, ``what``.
    """
    if len(data) % form.size:
        raise CorruptData(f"{what} is cut off", file=source, bytes=len(data))
    last: E | None = None
    for number, (first, second) in enumerate(form.iter_unpack(data)):
        if first == second == 0 and (last is not None or not any(data)):
            break  # preallocated zeros of the active segment's file
        entry = meaning(first, second)
        if entry is None:
            raise CorruptData(f"{what} entry is negative", file=source, position=number * form.size)
        if last is not None and not increases(last, entry):
            raise CorruptData(f"{what} does not increase", file=source, position=number * form.size)
        last = entry
        yield entry


class EntriesInTurn(Generic[E]):
    """Holds only the next entry of an index, for a check that reads the index in parallel with its log."""

    def __init__(self, entries: Iterable[E]) -> None:
        self._entries = iter(entries)
        self.wrong = False
        """True if an entry does not fit the log, or if reading the entries raised CorruptData."""
        self.next: E | None = None
        self.take()

    def take(self) -> None:
        """Advance `next` to the next entry, or to None at the end."""
        try:
            self.next = next(self._entries, None)
        except CorruptData:
            self.wrong, self.next = True, None
