"""Replays the topic or the archive into a view as of a position or a time.

The archive is exact, unless it has holes. The topic lacks the records that compaction removed. At a position that the
cleaner may have reached, a view is exact only if no record below the position is missing. Otherwise it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..state.errors import InvalidRequest
from ..state.offsets import Position, TimestampMs
from ..state.view import Entry, ViewStore
from ..storage.object_store import ObjectReader
from .archive_chain import Chain, chain_after, chain_of, newest_base, read_archive
from .archive_piece import ArchivedEntry
from .as_of import MIN_COMPACTION_LAG_MS
from .live_set_object import BASE, LiveSetHeader, apply_table, fetch_table, read_header, read_live_table, scratch_folder
from .object_names import PositionName
from .replay import catch_up
from .view_identity import Shelf

NO_TIME = TimestampMs(-1)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """The end of a replay: ``position`` (exclusive), or the first record at or after ``time`` (ms), or else the end.

    ``without``: the fact under this key is not applied.
    """

    position: Position | None = None
    time: TimestampMs | None = None
    without: str | None = None


END = Target()


@dataclass(frozen=True, slots=True)
class Replayed:
    """All records below ``position`` were applied. ``records``: the number of records read.

    ``holes``: the number of positions without a record at the time of the replay of the topic, or at the time of
    archiving; an archive with holes is not exact. ``reached``: False if the archive has no record at or after the
    requested time, so that more records before that time may be missing. ``newest_timestamp``: newest append time (ms)
    of the records read, or -1 if unknown.
    """

    tier_partition: int
    position: Position
    records: int
    holes: int
    reached: bool
    newest_timestamp: TimestampMs


def replay_topic(
    topic: TierTopic,
    tier_partition: int,
    store: ViewStore,
    now_ms: TimestampMs,
    to: Target = END,
    progress: Progress | None = None,
) -> Replayed:
    """Replay the topic into an empty ``store``, up to ``to`` or the end captured now.

    Raises InvalidRequest if compaction may have changed the requested past, or if the position is beyond the end.
    """
    end = topic.end(tier_partition)
    target = end
    if to.position is not None:
        if to.position > end:
            raise InvalidRequest("the tier-state topic ends before this position", position=to.position, end=end)
        target = to.position
    elif to.time is not None:
        target = min(end, topic.position_at(tier_partition, to.time))
    # Records younger than the lag were not compacted, so a view that ends at one of them is exact.
    untouched = target
    if target < end:
        untouched = topic.position_at(tier_partition, TimestampMs(now_ms - MIN_COMPACTION_LAG_MS))
    records = catch_up(topic, store, {tier_partition: target}, without=to.without, progress=progress)
    holes = target - records
    if holes and target < untouched:
        raise InvalidRequest(
            "compaction has passed this position, so the topic no longer tells what stood there: read the archive",
            tier_partition=tier_partition,
            position=target,
            missing=holes,
        )
    return Replayed(tier_partition, target, records, holes, True, NO_TIME)


def replay_archive(
    shelf: Shelf[ObjectReader], store: ViewStore, to: Target = END, progress: Progress | None = None
) -> Replayed:
    """Replay the archive up to ``to`` or its end. ``store`` is empty, or has the live set of a checkpoint.

    Raises InvalidRequest if the archive does not contain the position or begins after the time, or belongs to
    another cluster or mapping. Raises CorruptData if the archive is damaged.
    """
    objects, tier_partition = shelf.objects, shelf.tier_partition
    at = store.position(tier_partition)
    checkpoint = PositionName(at, shelf.place.checkpoint(at)) if at else None
    chain = chain_after(objects, shelf.place, checkpoint or newest_base(objects, shelf.place))
    if to.position is not None and not chain.start <= to.position <= chain.end:
        raise InvalidRequest(
            "the archive does not hold this position",
            tier_partition=tier_partition,
            position=to.position,
            begins=chain.start,
            ends=chain.end,
        )
    newest, holes = NO_TIME, 0
    if checkpoint is not None:
        newest = TimestampMs(store.as_of(tier_partition))
    elif chain.base is not None:
        base = _load_base(shelf, chain, store, to.time)
        newest, holes = TimestampMs(base.as_of), base.holes
    records = 0
    position = chain.start
    reached = to.time is None
    for piece in read_archive(objects, chain, to.position):
        piece.require_of(shelf.identity)
        first = max(piece.name.first, chain.start)  # a checkpoint may end within a piece
        entries = [each for each in piece.entries if each.position >= first]
        below, ended = _below(entries, to)
        newest = max([newest, *(each.timestamp for each in entries[: len(below)])])
        position = Position(piece.name.last + 1)
        if to.position is not None:
            position = min(position, to.position)
        if ended:
            position = entries[len(below)].position
        store.apply(tier_partition, [entry for entry in below if entry.key != to.without], position)
        records += len(below)
        holes += position - first - len(below)
        if progress:
            progress(records)
        if ended:
            reached = True
            break
    return Replayed(tier_partition, position, records, holes, reached, newest)


def _load_base(
    shelf: Shelf[ObjectReader], chain: Chain, store: ViewStore, to_time: TimestampMs | None
) -> LiveSetHeader:
    assert chain.base is not None
    name, objects = chain.base, shelf.objects
    header, start = read_header(objects, name, BASE, chain.place, shelf.identity)
    if to_time is not None and header.as_of >= to_time:
        raise InvalidRequest("the archive begins after this time", time=to_time, begins=header.as_of)
    with scratch_folder(store) as folder:
        apply_table(fetch_table(objects, name.key, header, start, folder), store, folder)
    return header


def _below(archived: Sequence[ArchivedEntry], to: Target) -> tuple[list[Entry], bool]:
    """Return the entries before the target, and whether a record at or after the target's time was found."""
    entries: list[Entry] = []
    for each in archived:
        if to.time is not None and each.timestamp >= to.time:
            return entries, True
        if to.position is not None and each.position >= to.position:
            break
        entries.append(each.entry)
    return entries, False


def archived_entries(shelf: Shelf[ObjectReader]) -> Iterator[Entry]:
    """Yield all facts and tombstones of the archive: the base's live set in order of key, then the pieces in order.

    Raises InvalidRequest if the archive belongs to another cluster or mapping, and CorruptData if it is damaged.
    """
    objects = shelf.objects
    chain = chain_of(objects, shelf.place)
    if chain.base is not None:
        header, start = read_header(objects, chain.base, BASE, chain.place, shelf.identity)
        with scratch_folder(None) as folder:
            table = fetch_table(objects, chain.base.key, header, start, folder)
            yield from read_live_table(table.path, folder / "database")
    for piece in read_archive(objects, chain):
        piece.require_of(shelf.identity)
        yield from (each.entry for each in piece.entries)
