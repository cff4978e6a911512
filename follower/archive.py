"""Writes the archive: facts and tombstones with their positions, before compaction can remove them. The commit point
of each piece is one put-if-absent.

    LIST  →  read from the end of the furthest piece  →  put the next pieces, each with the hash of its predecessor

The agent whose broker leads the tier-state partition writes. Around a leader change, two agents may write. An agent
that finds a new piece of the other agent continues after it. Overlapping pieces of both agree (`archive_chain.py`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from itertools import repeat

from ..broker.tier_reader import UNKNOWN_EPOCH, lost_heads
from ..broker.tier_topic import TierTopic
from ..state.errors import CorruptData, ObjectExists, PositionLost, TierStateLost, Unavailable
from ..state.keys import said_by_people
from ..state.offsets import Position, TimestampMs
from ..state.view import ViewStore
from ..storage.object_store import ObjectReader, ObjectStore
from .archive_chain import START, Chain, archived_to, chain_of, furthest_of, reached_by, read_header, read_piece
from .archive_piece import (
    MAX_PLAIN_BYTES,
    WINDOW,
    ArchivedEntry,
    Draft,
    Piece,
    border_after,
    decode_header,
    encode_piece,
)
from .archives import broken_history
from .as_of import parted
from .live_set_object import BASE, put_live_set, scratch_folder, write_live_set
from .object_names import PieceName, TierPlace
from .replay import batches_until
from .time_travel import Target, replay_archive
from .view_identity import Shelf

ROUNDS = 10
"""After another writer was faster this many times, a call ends with Unavailable; a later call does the rest."""
FEW = MAX_PLAIN_BYTES // (64 * 1024)
"""Fewer records than this never reach the maximum size of a piece, because a fact has at most 64 KiB."""


def archive(
    topic: TierTopic,
    shelf: Shelf[ObjectStore],
    now_ms: TimestampMs,
    partial_after_ms: int,
    floor: Position = START,
    people_spoke: bool = False,
    stop: threading.Event | None = None,
) -> Generator[str, None, Position]:
    """Archive one tier-state partition up to the end captured now. Yields before each put; returns `archived_to`.

    A window that is not full is archived in part once its oldest record is older than ``partial_after_ms``, and at once
    if it has a fact by people. ``people_spoke``: it may have such a fact, so its records are read. ``floor``: an
    earlier result, which shortens the LIST. Memory: two pieces.

    Raises HistoryBroken if the topic does not continue where the archive ends, and TierStateLost if the topic begins
    above that position. Raises CorruptData if the pieces were deleted, or if the furthest piece is damaged and there is
    something to write. After an operator removed a damaged piece, the next call writes it again, as long as the topic
    has its records. Also raises Unavailable if other writers are faster or ``stop`` is set, and errors of the clients.
    """
    objects, place, tier_partition = shelf.objects, shelf.place, shelf.tier_partition
    for _ in range(ROUNDS):
        names = _names(objects, place, floor)
        reached = Position(max((name.last + 1 for name in names), default=START))
        end = topic.end(tier_partition)
        name = furthest_of(names)
        if name is not None and end < reached:
            raise broken_history(place, name, f"the topic ends at {end}, below what is archived")
        before = TimestampMs(now_ms - partial_after_ms)
        if end == reached or (not people_spoke and _nothing_to_write(topic, tier_partition, reached, end, before)):
            return reached_by(names, floor) if floor or not names else archived_to(objects, place)
        furthest = _furthest(shelf, names)
        _check_epoch(topic, place, furthest)
        for draft in _drafts(topic, tier_partition, reached, end, stop):
            if not draft.full and not _waited(draft, before):
                return archived_to(objects, place, floor)
            # checked after these records were read, so that they belong to the compared history
            check_continues(topic, place, furthest)
            data = encode_piece(shelf.identity, tier_partition, draft, furthest)
            name = PieceName(draft.first, draft.last, place.piece(draft.first, draft.last))
            yield "put archive"
            try:
                # The commit point: from here on these records are kept, whatever compaction does.
                objects.put_if_absent(name.key, data)
            except ObjectExists:
                break
            furthest = Piece(name, decode_header(data, place, name)[0], draft.entries, hashlib.sha256(data).hexdigest())
            reached = Position(draft.last + 1)
        else:
            return archived_to(objects, place, floor)
    raise Unavailable("others write this archive faster", tier_partition=tier_partition)


def _names(objects: ObjectReader, place: TierPlace, floor: Position) -> list[PieceName]:
    """Return the names of the pieces from the window of ``floor`` on. Raises CorruptData if they were deleted."""
    names = list(place.pieces(objects, since=max(floor - 1, 0) // WINDOW * WINDOW))
    if not names and (floor or place.bases(objects)):
        raise CorruptData("the pieces of the archive are gone", file=place.pieces_prefix, position=floor)
    return names


def check_continues(topic: TierTopic, place: TierPlace, furthest: Piece | None) -> None:
    """Raise HistoryBroken when the topic does not continue where this piece ends."""
    anchor = furthest.anchor if furthest else None
    why = parted(topic, place.tier_partition, anchor) if anchor else None
    if furthest is not None and why is not None:
        raise broken_history(place, furthest.name, why)


def _check_epoch(topic: TierTopic, place: TierPlace, furthest: Piece | None) -> None:
    """Raise HistoryBroken if leader epochs show that the topic lost archived records, or TierStateLost if it lost its
    first records. `check_continues` misses a loss if compaction removed the record that it compares.
    """
    if furthest is None or furthest.header.epoch == UNKNOWN_EPOCH:
        return
    following, tier_partition = Position(furthest.name.last + 1), place.tier_partition
    try:
        with closing(topic.reader({tier_partition: following}, {tier_partition: furthest.header.epoch})) as reader:
            reader.poll(0)
    except PositionLost as lost:
        start = topic.starts([tier_partition]).get(tier_partition, START)
        if start > following:  # the same history without its first records: no new history may begin on the rest
            raise TierStateLost(*lost_heads("the tier-state topic", {tier_partition: start})) from lost
        raise broken_history(place, furthest.name, str(lost)) from lost


def _nothing_to_write(
    topic: TierTopic, tier_partition: int, reached: Position, end: Position, before: TimestampMs
) -> bool:
    """Return whether the unarchived records fill no piece and were all appended after ``before``; False if unknown.

    Reads no records and no pieces, because this is called every minute for every quiet partition.
    """
    few = end < border_after(reached) and end - reached < FEW
    return few and topic.position_at(tier_partition, TimestampMs(before + 1)) <= reached


def _furthest(shelf: Shelf[ObjectReader], names: Sequence[PieceName]) -> Piece | None:
    """Read and verify the piece after which to continue. Returns None if there are no pieces."""
    name = furthest_of(names)
    if name is None:
        return None
    piece = read_piece(shelf.objects, shelf.place, name)
    piece.require_of(shelf.identity)
    return piece


def _waited(draft: Draft, before: int) -> bool:
    """Return whether to put the draft now. Facts by people do not wait: objects have copies of agents' facts only."""
    old = bool(draft.entries) and draft.entries[0].timestamp <= before
    return old or any(said_by_people(each.entry.key) for each in draft.entries)


def _drafts(
    topic: TierTopic, tier_partition: int, first: Position, end: Position, stop: threading.Event | None
) -> Iterator[Draft]:
    """Yield drafts of the records in ``[first, end)``, cut at window borders and by size. The last may not be full."""
    if first >= end:
        return
    entries: list[ArchivedEntry] = []
    size, epoch = 0, -1
    for batch in batches_until(topic.reader({tier_partition: first}), tier_partition, end, stop):
        epoch = batch.epoch
        for entry, timestamp in zip(batch.entries, batch.timestamps or repeat(TimestampMs(-1)), strict=False):
            if entry.position >= end:
                break
            while entry.position >= (border := border_after(first)):
                yield Draft(first, Position(border - 1), tuple(entries), epoch, full=True)
                first, entries, size = border, [], 0
            entries.append(ArchivedEntry(entry, timestamp))
            size += entries[-1].size
            if size >= MAX_PLAIN_BYTES:
                yield Draft(first, entry.position, tuple(entries), epoch, full=True)
                first, entries, size = Position(entry.position + 1), [], 0
    while end >= (border := border_after(first)):
        yield Draft(first, Position(border - 1), tuple(entries), epoch, full=True)
        first, entries = border, []
    if first < end:
        yield Draft(first, Position(end - 1), tuple(entries), epoch, full=False)


def cut_archive(
    shelf: Shelf[ObjectStore], older_than: TimestampMs, new_store: Callable[[], ViewStore]
) -> Generator[str, None, Position]:
    """Remove complete windows whose newest record is older than ``older_than`` (ms). Returns the archive's new start.

    A live fact may be older than every piece that is kept. So the live set at the cut is put first, as the *base* with
    which every reader begins. Only then are older pieces deleted, oldest first, then older bases. Yields before each
    step. The base is built in an empty view of ``new_store``, which is closed at the end. Raises CorruptData, and
    removes nothing, if a piece to be removed is damaged or any piece is missing.
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
                with suppress(ObjectExists):  # another agent cut here too
                    # From here on readers begin at the cut, whatever objects remain below it.
                    put_live_set(objects, place.base(cut), BASE, table)
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
