"""Writes the archive: facts and tombstones with their positions, before compaction can remove them. The commit point
of each piece is one put-if-absent.

    LIST  →  read from the end of the furthest piece  →  put the next pieces, each with the hash of its predecessor

The agent whose broker leads the tier-state partition writes. Around a leader change, two agents may write. An agent
that finds a new piece of the other agent continues after it. Overlapping pieces of both agree (`archive_chain.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from itertools import repeat

from ..broker.tier_reader import UNKNOWN_EPOCH, lost_heads
from ..broker.tier_topic import TierBatch, TierReader, TierTopic
from ..state.errors import (
    BrokerUnavailable,
    CorruptData,
    InvalidRequest,
    ObjectExists,
    PositionLost,
    TierStateLost,
    Unavailable,
)
from ..state.keys import said_by_people
from ..state.offsets import Position, TimestampMs
from ..storage.object_store import ObjectReader, ObjectStore
from .archive_chain import START, archived_to, furthest_of, reached_by, read_piece
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
from .object_names import PieceName, TierPlace
from .same_history import parted
from .shelf import Shelf

ROUNDS = 10
"""After another writer was faster this many times, a call ends with Unavailable; a later call does the rest."""
FEW = MAX_PLAIN_BYTES // (64 * 1024)
"""Fewer records than this never reach the maximum size of a piece, because a fact has at most 64 KiB."""
POLL_S = 0.2
SILENT_POLLS = 150


def archive(
    topic: TierTopic,
    shelf: Shelf[ObjectStore],
    now_ms: TimestampMs,
    partial_after_ms: int,
    floor: Position = START,
    people_spoke: bool = False,
) -> Generator[str, None, Position]:
    """Archive one tier-state partition up to the end captured now. Yields before each put; returns `archived_to`.

    A window that is not full is archived in part once its oldest record is older than ``partial_after_ms``, and at once
    if it has a fact by people. ``people_spoke``: it may have such a fact, so its records are read. ``floor``: an
    earlier result, which shortens the LIST. Memory: two pieces.

    Raises HistoryBroken if the topic does not continue where the archive ends, and TierStateLost if the topic begins
    above that position. Raises CorruptData if the pieces were deleted, or if the furthest piece is damaged and there is
    something to write. After an operator removed a damaged piece, the next call writes it again, as long as the topic
    has its records. Also raises Unavailable if other writers are faster, and the errors of store and broker.
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
        for draft in _drafts(topic, tier_partition, reached, end):
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
        reader = topic.reader({tier_partition: following}, {tier_partition: furthest.header.epoch})
        try:
            reader.poll(0)
        finally:
            reader.close()
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
    piece, identity = read_piece(shelf.objects, shelf.place, name), shelf.identity
    if (piece.header.cluster_id, piece.header.partitions) != (identity.cluster_id, identity.partitions):
        raise InvalidRequest("the archive is of another cluster or mapping", file=piece.name.key)
    return piece


def _waited(draft: Draft, before: int) -> bool:
    """Return whether to put the draft now. Facts by people do not wait: objects have copies of agents' facts only."""
    old = bool(draft.entries) and draft.entries[0].timestamp <= before
    return old or any(said_by_people(each.entry.key) for each in draft.entries)


def _drafts(topic: TierTopic, tier_partition: int, first: Position, end: Position) -> Iterator[Draft]:
    """Yield drafts of the records in ``[first, end)``, cut at window borders and by size. The last may not be full."""
    if first >= end:
        return
    entries: list[ArchivedEntry] = []
    size, epoch = 0, -1
    for batch in batches_until(topic.reader({tier_partition: first}), tier_partition, end):
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


def batches_until(reader: TierReader, tier_partition: int, end: Position) -> Iterator[TierBatch]:
    """Yield batches until ``end`` is reached, then close the reader. The last batch may have records beyond ``end``.

    Raises BrokerUnavailable if no records come for half a minute.
    """
    silent = 0
    try:
        while True:
            batches = reader.poll(POLL_S)
            silent = 0 if batches else silent + 1
            if silent >= SILENT_POLLS:
                raise BrokerUnavailable("tier-state topic brings nothing", tier_partition=tier_partition, end=end)
            for batch in batches:
                yield batch
                if batch.following >= end:
                    return
    finally:
        reader.close()
