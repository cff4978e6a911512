"""Removes the oldest pieces of an archive without losing facts that are still live.

A live fact may be older than every piece that is kept. So the live set at the cut is put first, as the *base* with
which every reader begins. Only then are the older pieces deleted.

    base at the cut  →  delete pieces below it, oldest first  →  delete older bases
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ..state.errors import CorruptData, ObjectExists
from ..state.offsets import Position, TimestampMs
from ..state.view import ViewStore
from ..storage.object_store import ObjectReader, ObjectStore
from .archive_chain import Chain, chain_of, read_header
from .archive_piece import WINDOW
from .live_set_object import BASE, put_live_set, scratch_folder, write_live_set
from .shelf import Shelf
from .time_travel import Target, replay_archive


def cut_archive(
    shelf: Shelf[ObjectStore],
    older_than: TimestampMs,
    new_store: Callable[[], ViewStore],
) -> Generator[str, None, Position]:
    """Remove complete windows whose newest record is older than ``older_than`` (ms). Returns the archive's new start.

    Yields before each step. The base is built in an empty view of ``new_store``, which is closed at the end. Raises
    CorruptData, and removes nothing, if a piece to be removed is damaged or any piece is missing.
    """
    objects, place = shelf.objects, shelf.place
    chain = chain_of(objects, place)
    if chain.missing is not None:  # also if there is nothing to remove: all names are checked once a day
        first, last = chain.missing
        raise CorruptData("pieces of the archive are missing", file=place.pieces_prefix, first=first, last=last)
    cut = _cut(objects, chain, older_than)
    if cut > chain.start:
        store = new_store()
        try:
            result = replay_archive(shelf, store, Target(cut))
            store.mark_as_of(shelf.tier_partition, result.newest_timestamp)
            with scratch_folder(store) as folder:
                table = write_live_set(store, shelf.identity, shelf.tier_partition, folder, holes=result.holes)
                yield "put archive base"
                try:
                    # From here on readers begin at the cut, whatever objects remain below it.
                    put_live_set(objects, place.base(cut), BASE, table)
                except ObjectExists:
                    pass  # another agent cut here too
        finally:
            store.close()
    for name in list(place.pieces(objects)):
        if name.last < cut:
            yield "delete archive"
            objects.delete(name.key)
    for base in place.bases(objects):
        if base.position < cut:
            yield "delete old archive base"
            objects.delete(base.key)
    return cut


def _cut(objects: ObjectReader, chain: Chain, older_than: TimestampMs) -> Position:
    """Return the window border below which all records are older than ``older_than``. The last piece always remains."""
    cut = chain.start
    for name in chain.names:
        if name.first % WINDOW == 0:
            cut = name.first
        if read_header(objects, chain.place, name).newest_timestamp >= older_than:
            break
    return cut
