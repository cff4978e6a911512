"""Reads a view from the bucket alone, without a broker: from the newest checkpoint and the archive after it. A view of
an earlier moment is read from the archive up to this moment.

The view changes only by `advance`. It cannot know whether the current leaders have the same log, so its age is part of
every answer (decision 0047). A rule marked * prevents a loss that a model or a review found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ..schemas.codec import decode_fact
from ..state.errors import CorruptData, HistoryBroken, InvalidRequest, ObjectNotFound, TierstateError
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import Anchor, Entry, MemoryView, SecondValue
from ..storage.object_store import ObjectReader
from .archive_chain import newest_base, read_header, read_piece
from .archive_piece import WINDOW
from .archives import has_parted, newest_history
from .checkpoint import Refused
from .live_set_object import BASE, CHECKPOINT, fetch_table, scratch_folder, take_table
from .live_set_object import read_header as read_live_set_header
from .object_names import ROOT, PositionName, TierPlace, kept_topics, place_of_key
from .time_travel import END, Replayed, Target, replay_archive
from .view_identity import Shelf, ViewIdentity

AT_ONCE = 16
"""Number of tier-state partitions that are read concurrently, because most of the time is spent waiting."""


class BucketView:
    """A `TierView` of the past. Thread-safe. ``replays``: the result of each tier-state partition's replay."""

    def __init__(self, identity: ViewIdentity, store: MemoryView, replays: Iterable[Replayed]) -> None:
        self.identity = identity
        self.replays = {each.tier_partition: each for each in replays}
        self._store = store
        self._agreed = set[int]()
        """Tier-state partitions of which the archive has the last record of the checkpoint."""

    def close(self) -> None:
        self._store.close()

    def advance(self, objects: ObjectReader, identity: ViewIdentity, refused: Refused) -> None:
        """Apply what was archived since the last call. Call it on a view of the newest moment, from one thread.

        The view is read again if its history ended, or if the archive no longer continues where the view ends. After an
        error the view is as it was, or further. Raises as `open_bucket_view`.
        """
        if identity == self.identity and all([self._continues(objects, number) for number in list(self.replays)]):
            return
        again = open_bucket_view(objects, identity, NEWEST, refused)
        self.identity, self._store, self.replays = identity, again._store, again.replays
        self._agreed.clear()

    def _continues(self, objects: ObjectReader, number: int) -> bool:
        """Apply what was archived of one tier-state partition. Return False if the archive does not continue there."""
        shelf, anchor = Shelf(objects, self.identity, number), self._store.anchor(number)
        try:
            if anchor is not None and number not in self._agreed and _check_same(objects, shelf.place, anchor):
                self._agreed.add(number)
            more = replay_archive(shelf, self._store)
        except (CorruptData, InvalidRequest):  # perhaps a cut deleted the pieces that would be next
            return False
        before = self.replays[number]
        self.replays[number] = replace(
            more,
            records=before.records + more.records,
            holes=before.holes + more.holes,
            newest_timestamp=max(before.newest_timestamp, more.newest_timestamp),
        )
        return True

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        number = self._require_read(partition)
        view, foreign = self._store.state(partition).view(), self._store.foreign(number)
        return replace(view, degraded=view.degraded + foreign) if foreign else view

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield the whole live set as bytes: (tier-state partition, entry)."""
        return self._store.entries()

    def partitions(self) -> list[TopicIdPartition]:
        return self._store.partitions()

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        self._require_read(partition)
        return self._store.state(partition).facts()

    def _require_read(self, partition: TopicIdPartition) -> int:
        """Return the tier-state partition with the facts of ``partition``. Raises InvalidRequest if it was not read."""
        number = self.tier_partition(partition)
        if number not in self.replays:
            raise InvalidRequest(
                "the facts of this partition are in another tier-state partition than the requested one",
                partition=partition,
                tier_partition=number,
                asked=next(iter(self.replays), None),
            )
        return number

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return tier_partition_of(partition, self.identity.partitions)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return self._store.second_values(partition)

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        """Do nothing: only writers of facts forget second values."""

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        """Return at once: only `advance` applies records."""

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        """Return at once: the caller that opened the view knows its age."""

    def require_ready(self, tier_partition: int) -> None:
        """Return at once, like `require_fresh`."""

    def age_s(self, tier_partition: int) -> float | None:
        """Return None: the topic's end is unknown. `ViewAge` has the age of the view."""
        return None


def find_identity(
    objects: ObjectReader, topic_id: str = "", history: int | None = None
) -> tuple[ViewIdentity, str | None]:
    """Return the identity of the archive and checkpoints to read, and why the topic diverged from them, or None.

    ``topic_id`` is needed if the bucket has several topics. ``history`` None means the newest. Raises InvalidRequest if
    no topic or history matches, or several do. Raises HistoryBroken if ``history`` is None and the newest diverged.
    """
    topics = kept_topics(objects)
    if topic_id and topic_id not in topics:
        raise InvalidRequest(
            "the bucket has nothing of this tier-state topic", topic_id=topic_id, kept=", ".join(topics)
        )
    if not topics:
        raise InvalidRequest("the bucket has neither checkpoints nor an archive of a tier-state topic")
    if len(topics) > 1 and not topic_id:
        names = ", ".join(f"{each} (cluster {_identity(objects, each).cluster_id})" for each in topics)
        raise InvalidRequest("the bucket keeps several tier-state topics: name one by view.topic_id", kept=names)
    topic = topic_id or topics[0]
    newest = newest_history(objects, topic)
    number = newest if history is None else history
    if number > newest:
        raise InvalidRequest("this history has not begun", history=number, newest=newest)
    broken = has_parted(objects, topic, number)
    if broken is not None and history is None:
        raise HistoryBroken(
            "the tier-state topic diverged from its archive, and nobody has decided which one counts: set view.history "
            "to read the archive",
            topic_id=topic,
            history=number,
            said=broken.message,
        )
    why = None if broken is None else f"the topic no longer has history {number}: {broken.message}"
    return replace(_identity(objects, topic), history=number), why


def _identity(objects: ObjectReader, topic_id: str) -> ViewIdentity:
    """Return the identity in the first readable header. If there is none, raises InvalidRequest or the last error."""
    problem: TierstateError = InvalidRequest("there is neither a checkpoint nor an archive", topic_id=topic_id)
    for each in objects.list(f"{ROOT}{topic_id}/"):
        place = place_of_key(each.key)
        if place is None:
            continue
        try:
            identity = _identity_in(objects, place, each.key)
        except (CorruptData, InvalidRequest, ObjectNotFound) as error:
            problem = error  # the next object has the same identity
            continue
        if identity is not None:
            return identity
    raise problem


def _identity_in(objects: ObjectReader, place: TierPlace, key: str) -> ViewIdentity | None:
    """Return the identity in a checkpoint, a base or a piece; None for any other object."""
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
    head = read_header(objects, place, piece)
    return ViewIdentity(head.cluster_id, head.topic_id, head.partitions)


@dataclass(frozen=True, slots=True)
class Moment:
    """Selects the records to read: those up to ``to``, in ``tier_partition`` or, if it is None, in every one."""

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
    """Open a view in memory. ``refused`` is called with the key of each skipped checkpoint and the reason. ``advance``
    is called with 1 after each tier-state partition that was read.

    Raises InvalidRequest if the bucket lacks the moment, CorruptData if the archive is damaged, and the store's errors.
    """
    numbers = range(identity.partitions) if moment.tier_partition is None else (moment.tier_partition,)
    if any(number >= identity.partitions for number in numbers):
        raise InvalidRequest(
            "no such tier-state partition", number=moment.tier_partition, partitions=identity.partitions
        )
    store = MemoryView(decode_fact, identity.partitions)
    replays = []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket-view") as pool:
        shelves = [Shelf(objects, identity, number) for number in numbers]
        futures = [pool.submit(_read, shelf, store, moment.to, refused) for shelf in shelves]
        try:
            for each in futures:
                replays.append(each.result())
                advance(1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return BucketView(identity, store, replays)


def _read(shelf: Shelf[ObjectReader], store: MemoryView, to: Target, refused: Refused) -> Replayed:
    if to.time is None:
        _take_checkpoint(shelf, store, to.position, refused)
    elif _lost_archive(shelf):
        raise InvalidRequest(
            "there is no archive, so the view of an earlier time is unknown",
            tier_partition=shelf.tier_partition,
            time=to.time,
        )
    return replay_archive(shelf, store, to)


def _lost_archive(shelf: Shelf[ObjectReader]) -> bool:
    """Return whether there is no archive but a checkpoint above position 0. A checkpoint shows no earlier time."""
    objects, place = shelf.objects, shelf.place
    has_facts = any(name.position for name in place.checkpoints(objects))
    return has_facts and next(place.pieces(objects), None) is None


def _check_same(objects: ObjectReader, place: TierPlace, anchor: Anchor) -> bool:
    """Return whether the archive has the last record of a checkpoint. Raises InvalidRequest if it has another there.

    The archive continues with the topic's current records. A checkpoint may have records that the topic lost since*.
    """
    for name in place.pieces(objects, since=anchor.position // WINDOW * WINDOW):
        if name.first > anchor.position:
            return False
        if anchor.position > name.last:
            continue
        try:
            piece = read_piece(objects, place, name)
        except CorruptData:
            continue  # a reader that needs this piece gets the error
        if any(each.position == anchor.position and each.anchor != anchor for each in piece.entries):
            raise InvalidRequest(
                "the checkpoint has records that the topic lost: the archive has others",
                position=anchor.position,
                archive=name.key,
            )
        return True
    return False


def _take_checkpoint(shelf: Shelf[ObjectReader], store: MemoryView, below: Position | None, refused: Refused) -> None:
    """Load the newest readable checkpoint up to this position. It may be old: the archive has every tombstone since."""
    objects, place = shelf.objects, shelf.place
    base = newest_base(objects, place)
    first = base.position if base else 0  # the archive no longer has the records after an older checkpoint
    for name in reversed(place.checkpoints(objects)):
        if name.position < first or (below is not None and name.position > below):
            continue
        with scratch_folder(store) as folder:
            try:
                header, start = read_live_set_header(objects, name, CHECKPOINT, place, shelf.identity)
                if header.anchor is not None:
                    _check_same(objects, place, header.anchor)
                table = fetch_table(objects, name.key, header, start, folder)
            except (CorruptData, InvalidRequest, ObjectNotFound) as error:
                refused(name.key, error)
                continue
            take_table(table, store, folder)
            return
