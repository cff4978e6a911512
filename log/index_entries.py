"""Index files of a segment: entries of one fixed size, in order, and the zeros that Kafka preallocated behind them."""

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
    """One after the other: as objects the entries of 1 GiB may be 30 MiB.

    ``meaning``: of the two numbers of an entry; None when one is negative that may not be. ``increases``: whether an
    entry may follow another. Raises CorruptData, naming ``what``.
    """
    if len(data) % form.size:
        raise CorruptData(f"{what} is cut off", file=source, bytes=len(data))
    last: E | None = None
    for number, (first, second) in enumerate(form.iter_unpack(data)):
        if first == second == 0 and (last is not None or not any(data)):
            break  # the active segment's file: not data
        entry = meaning(first, second)
        if entry is None:
            raise CorruptData(f"{what} entry is negative", file=source, position=number * form.size)
        if last is not None and not increases(last, entry):
            raise CorruptData(f"{what} does not increase", file=source, position=number * form.size)
        last = entry
        yield entry


class EntriesInTurn(Generic[E]):
    """What checks an index against its log takes entries from: as the log goes on, never all of them at once."""

    def __init__(self, entries: Iterable[E]) -> None:
        self._entries = iter(entries)
        self.wrong = False
        """Also once they end in CorruptData."""
        self.next: E | None = None
        self.take()

    def take(self) -> None:
        """On to the next entry; None at the end."""
        try:
            self.next = next(self._entries, None)
        except CorruptData:
            self.wrong, self.next = True, None
