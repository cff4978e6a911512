"""The view from the bucket alone: the newest checkpoint and what was archived after it, or the archive up to an earlier
moment. No broker is asked.

It stands still: it is what the agents had said by its newest fact. Whether a leader of now has the same log nobody can
say here, so its age is part of every answer (decision 0047).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

from ..schemas.codec import decode_fact
from ..state.errors import CorruptData, HistoryBroken, InvalidRequest, ObjectNotFound, TierstateError
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import Entry, MemoryView, SecondValue
from ..storage.object_store import ObjectReader
from .archive_chain import newest_base, read_header, read_piece
from .archive_piece import WINDOW
from .checkpoint import Refused
from .histories import has_parted, newest_history
from .live_set_object import BASE, CHECKPOINT, LiveSetHeader, fetch_table, scratch_folder, take_table
from .live_set_object import read_header as read_live_set_header
from .object_names import ROOT, PositionName, TierPlace, kept_topics, place_of_key
from .shelf import Shelf
from .time_travel import END, Replayed, Target, replay_archive
from .view_identity import ViewIdentity

AT_ONCE = 16
"""Tier-state partitions read side by side: most of it is waiting for a store."""
_tier_partition_of = lru_cache(65_536)(tier_partition_of)


class BucketView:
    """A `TierView` that is as fresh as it will be. Thread-safe. ``kept``: how far each tier-state partition goes."""

    def __init__(self, identity: ViewIdentity, store: MemoryView, kept: Iterable[Replayed]) -> None:
        self.identity = identity
        self.kept = {each.tier_partition: each for each in kept}
        self._store = store

    def close(self) -> None:
        self._store.close()

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        number = self._holding(partition)
        view, foreign = self._store.state(partition).view(), self._store.foreign(number)
        return replace(view, degraded=view.degraded + foreign) if foreign else view

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """The whole live set as bytes: (tier-state partition, entry)."""
        return self._store.entries()

    def partitions(self) -> list[TopicIdPartition]:
        return self._store.partitions()

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        self._holding(partition)
        return self._store.state(partition).facts()

    def _holding(self, partition: TopicIdPartition) -> int:
        number = self.tier_partition(partition)
        if number not in self.kept:
            raise InvalidRequest(
                "what was said of this partition is in another tier-state partition than the one asked for",
                partition=partition,
                tier_partition=number,
                asked=next(iter(self.kept), None),
            )
        return number

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return _tier_partition_of(partition, self.identity.partitions)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return self._store.second_values(partition)

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        """They are for who writes facts."""

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        """Nothing comes."""

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        """Whoever opened it was told how old it is."""

    def require_ready(self, tier_partition: int) -> None:
        """Likewise."""

    def age_s(self, tier_partition: int) -> float | None:
        """Not of a topic's end: `ViewAge` says how old it is."""
        return None


def find_kept(objects: ObjectReader, topic_id: str = "", history: int | None = None) -> tuple[ViewIdentity, str | None]:
    """Whose archive and checkpoints are read, and why they are not the topic's own any more where that was said.

    ``topic_id``: needed where several tier-state topics are kept. ``history`` None: the newest. Raises InvalidRequest
    where there is none or it is not clear which, HistoryBroken for one that parted and was not asked for by its number.
    """
    found = kept_topics(objects)
    if topic_id and topic_id not in found:
        raise InvalidRequest("nothing is kept of this tier-state topic", topic_id=topic_id, kept=", ".join(found))
    if not found:
        raise InvalidRequest("the bucket has neither checkpoints nor an archive of a tier-state topic")
    if len(found) > 1 and not topic_id:
        named = ", ".join(f"{each} (cluster {_identity(objects, each).cluster_id})" for each in found)
        raise InvalidRequest("the bucket keeps several tier-state topics: name one by view.topic_id", kept=named)
    wanted = topic_id or found[0]
    newest = newest_history(objects, wanted)
    number = newest if history is None else history
    if number > newest:
        raise InvalidRequest("this history has not begun", history=number, newest=newest)
    parted = has_parted(objects, wanted, number)
    if parted is not None and history is None:
        raise HistoryBroken(
            "the tier-state topic parted from what is kept of it, and nobody said which counts: name view.history to "
            "read what was kept",
            topic_id=wanted,
            history=number,
            said=parted.message,
        )
    why = None if parted is None else f"history {number} is not the topic's any more: {parted.message}"
    return replace(_identity(objects, wanted), history=number), why


def _identity(objects: ObjectReader, topic_id: str) -> ViewIdentity:
    """By the header of any object. Raises CorruptData when none of them can be read."""
    problem: TierstateError = InvalidRequest(
        "neither a checkpoint nor a piece of an archive is kept", topic_id=topic_id
    )
    for each in objects.list(f"{ROOT}{topic_id}/"):
        place = place_of_key(each.key)
        if place is None:
            continue
        try:
            found = _identity_in(objects, place, each.key)
        except (CorruptData, InvalidRequest, ObjectNotFound) as error:
            problem = error  # the next one says it too
            continue
        if found is not None:
            return found
    raise problem


def _identity_in(objects: ObjectReader, place: TierPlace, key: str) -> ViewIdentity | None:
    """None for an object that is neither."""
    kinds = {f"{place.prefix}checkpoint/": CHECKPOINT, f"{place.prefix}archive-base/": BASE}
    folder, _, position = key.rpartition("/")
    kind = kinds.get(f"{folder}/")
    if kind is not None and position.isdigit():
        name = PositionName(Position(int(position)), key)
        header, _ = read_live_set_header(objects, name, kind, place, None)
        return ViewIdentity(header.cluster_id, header.topic_id, header.partitions)
    piece = place.parse_piece(key)
    if piece is None:
        return None
    said = read_header(objects, place, piece)
    return ViewIdentity(said.cluster_id, said.topic_id, said.partitions)


@dataclass(frozen=True, slots=True)
class Moment:
    """Which of its views the bucket is asked for. ``tier_partition``: of this one alone; None: of all."""

    to: Target = END
    tier_partition: int | None = None


NEWEST = Moment()


def open_bucket_view(
    objects: ObjectReader,
    identity: ViewIdentity,
    moment: Moment,
    refused: Refused,
    advance: Callable[[int], None] = lambda amount: None,
) -> BucketView:
    """In memory. ``refused``: told which checkpoint was passed over, and why. ``advance``: that one more partition of
    ``identity.partitions`` is read.

    Raises InvalidRequest for a moment that is not kept, CorruptData for a damaged archive, and what the store raises.
    """
    numbers = range(identity.partitions) if moment.tier_partition is None else (moment.tier_partition,)
    if any(number >= identity.partitions for number in numbers):
        raise InvalidRequest(
            "no such tier-state partition", number=moment.tier_partition, partitions=identity.partitions
        )
    store = MemoryView(decode_fact, identity.partitions)
    said = []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket-view") as pool:
        shelves = [Shelf(objects, identity, number) for number in numbers]
        reading = [pool.submit(_read, shelf, store, moment.to, refused) for shelf in shelves]
        try:
            for each in reading:
                said.append(each.result())
                advance(1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return BucketView(identity, store, said)


def _read(shelf: Shelf[ObjectReader], store: MemoryView, to: Target, refused: Refused) -> Replayed:
    if to.time is None:
        _take_checkpoint(shelf, store, to.position, refused)
    elif _lost_archive(shelf):
        raise InvalidRequest(
            "there is no archive, and a time is found in it alone", tier_partition=shelf.tier_partition, time=to.time
        )
    return replay_archive(shelf, store, to)


def _lost_archive(shelf: Shelf[ObjectReader]) -> bool:
    """A checkpoint tells what stood when it was made, and nothing of before. Nothing was ever said below position 0."""
    objects, place = shelf.objects, shelf.place
    said = any(name.position for name in place.checkpoints(objects))
    return said and next(place.pieces(objects), None) is None


def _check_same(objects: ObjectReader, place: TierPlace, header: LiveSetHeader) -> None:
    """The archive followed the topic to where it is now; a checkpoint may be of records that the topic lost since*.

    Raises InvalidRequest where the archive has another record than the last one of the checkpoint.
    """
    anchor = header.anchor
    if anchor is None:
        return
    for name in place.pieces(objects, since=anchor.position // WINDOW * WINDOW):
        if name.first > anchor.position:
            return
        if anchor.position > name.last:
            continue
        try:
            piece = read_piece(objects, place, name)
        except CorruptData:
            continue  # whoever needs this piece is told
        if any(each.position == anchor.position and each.anchor != anchor for each in piece.entries):
            raise InvalidRequest(
                "checkpoint is of records that the topic lost: the archive has others",
                position=anchor.position,
                archive=name.key,
            )


def _take_checkpoint(shelf: Shelf[ObjectReader], store: MemoryView, below: Position | None, refused: Refused) -> None:
    """The newest one that can be read, of this position at most. However old: the archive has every tombstone since."""
    objects, place = shelf.objects, shelf.place
    base = newest_base(objects, place)
    first = base.position if base else 0  # what follows an older one was cut off
    for name in reversed(place.checkpoints(objects)):
        if name.position < first or (below is not None and name.position > below):
            continue
        with scratch_folder(store) as folder:
            try:
                header, start = read_live_set_header(objects, name, CHECKPOINT, place, shelf.identity)
                _check_same(objects, place, header)
                table = fetch_table(objects, name.key, header, start, folder)
            except (CorruptData, InvalidRequest, ObjectNotFound) as error:
                refused(name.key, error)
                continue
            take_table(table, store, folder)
            return
