"""Read a segment's index files: entries of one size, in order, and the zeros that Kafka preallocates behind them."""

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
    """Yield the entries one by one: for 1 GiB of log they may take 30 MiB as objects.

    ``meaning`` makes an entry of its two numbers, or None if one is negative and must not be. ``increases`` returns
    whether its second argument may follow its first. Raises CorruptData, naming ``what``.
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
    """Holds the next entry for a check that reads an index alongside its log, never all entries at once."""

    def __init__(self, entries: Iterable[E]) -> None:
        self._entries = iter(entries)
        self.wrong = False
        """True if the entries do not fit, also after they ended in CorruptData."""
        self.next: E | None = None
        self.take()

    def take(self) -> None:
        """Advance `next` to the next entry, or to None at the end."""
        try:
            self.next = next(self._entries, None)
        except CorruptData:
            self.wrong, self.next = True, None
