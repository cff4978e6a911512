"""Checks how far each tier-state partition is archived, and whether topic and archive still have the same history.

Every agent checks this before it decides, not only the agent that writes the archive. While the archive has records
that the topic lost, no agent may erase or delete. An agent that sees a divergence records it for all others. A rule
marked * prevents a loss that a model or a review found.

A broker that is restored from a backup gives a topic another *history*: the newest records are lost, and new records
take their positions. The archive has the lost records, so it must not continue with the new records. No process can
know which history is wanted, so a person decides. Then archive and checkpoints start again with the topic's records,
under the prefix of the next history. The objects of the previous history stay unchanged. History 0 is the first.

    parted/<n>     put by the first process that sees that the topic is no longer of history n. It is never deleted,
                   because the records that prove it may be compacted away
    history/<n>    put by a person: from now on history n is the current one. It contains the reason, and the segments
                   that only the previous history knew, which no recovery restores
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat

import orjson

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import Event, FactsApplied
from ..state.errors import (
    CorruptData,
    Fenced,
    HistoryBroken,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    TierstateError,
    Unavailable,
)
from ..state.ids import RemoteSegmentId
from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor
from ..storage.object_store import ObjectReader, ObjectStore, ObjectWriter
from .archive_chain import START, chain_of, furthest_of, reached_by, read_archive, read_header, read_piece
from .archive_piece import WINDOW, ArchivedEntry, anchor_in
from .as_of import parted
from .envelope import seal, unseal
from .object_names import PieceName, TierPlace, first_places, history_key, numbers_under, parted_key
from .replay import batches_until
from .rocksdb_view import ViewIdentity
from .view_identity import Shelf

LOOK_S = 60.0
NOT_YET = "topic and archive have not been compared yet"


class Archives:
    """This process's knowledge of one topic's archives in one history. Positions never decrease. Thread-safe."""

    def __init__(
        self, topic: TierTopic, objects: ObjectStore, identity: ViewIdentity, clock: Clock, every_s: float = LOOK_S
    ) -> None:
        self._topic, self._objects, self._identity, self._clock = topic, objects, identity, clock
        self._every_s = every_s
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._positions: dict[int, Position] = {}
        self._asked_at: dict[int, float] = {}
        self._ends: dict[int, tuple[str, Anchor | None]] = {}
        self._compared: dict[int, str | None] = {}
        self.broken: HistoryBroken | None = None
        """The divergence that a person must resolve. Once seen, it stays as long as the process runs."""
        self._asked_others = float("-inf")
        self._quiet: set[int] = set()

    def known(self, tier_partition: int) -> Position:
        return self._positions.get(tier_partition, START)

    def reached(self, tier_partition: int, position: Position) -> None:
        """Record that all records below ``position`` are archived."""
        with self._lock:
            self._positions[tier_partition] = max(position, self.known(tier_partition))

    def listen(self, event: Event) -> None:
        """Record facts by people, which must be archived soon. This method is a `Listener`."""
        if isinstance(event, FactsApplied) and event.said_by_people:
            self.unheard(event.tier_partition)

    def spoken(self, tier_partition: int) -> bool:
        """Return whether there may be unarchived facts by people. True in a new process, which does not know."""
        return tier_partition not in self._quiet

    def unheard(self, tier_partition: int) -> None:
        """Record that there may be unarchived facts by people."""
        self._quiet.discard(tier_partition)

    def heard(self, tier_partition: int) -> None:
        """Record that all facts by people until now are about to be archived."""
        self._quiet.add(tier_partition)

    def archived_to(self, tier_partition: int) -> Position:
        """Return the position below which all records are archived. Older than a minute only while the store fails."""
        self._look_if_due(tier_partition)
        return self.known(tier_partition)

    def problem(self, tier_partition: int) -> str | None:
        """Return why nothing irreversible may be done about the partition's facts, or None. At most a minute old."""
        self._look_if_due(tier_partition)
        return str(self.broken) if self.broken is not None else self._compared.get(tier_partition, NOT_YET)

    def check(self, tier_partition: int) -> None:
        """Compare topic and archive now. Raises HistoryBroken, and the errors of store and broker."""
        with self._looking:
            self._look(tier_partition)
        if self.broken is not None:
            raise self.broken

    def check_over(self) -> None:
        """Raise Fenced if a person began another history: this process cannot continue in that history."""
        if self.broken is None:
            return
        newest = newest_history(self._objects, self._identity.topic_id)
        if newest > self._identity.history:
            raise Fenced("another history of the tier-state topic has begun: restart this process", history=newest)

    def _look_if_due(self, tier_partition: int) -> None:
        with self._looking:  # one thread queries, however many need the result
            now = self._clock.monotonic()
            if now - self._asked_at.get(tier_partition, now - self._every_s) < self._every_s:
                return
            self._asked_at[tier_partition] = now
            try:
                self._look(tier_partition)
            except TierstateError as error:  # the last result stays valid; without one, nothing is deleted
                if self._compared.get(tier_partition, NOT_YET) is not None:
                    self._compared[tier_partition] = f"{NOT_YET}: {error}"

    def _look(self, tier_partition: int) -> None:
        place, position = self._identity.place(tier_partition), self.known(tier_partition)
        self._ask_others(place)
        bases = place.bases(self._objects) if position == START else []
        # no piece crosses a border
        names = list(place.pieces(self._objects, since=max(position - 1, 0) // WINDOW * WINDOW))
        reach = reached_by(names, max([position, *(base.position for base in bases)]))
        self._compare(tier_partition, names)
        self.reached(tier_partition, reach)

    def _ask_others(self, place: TierPlace) -> None:
        """Read the divergences and new histories that others recorded, once a minute*, not only at the start."""
        now = self._clock.monotonic()
        if now - self._asked_others < self._every_s:
            return
        newest = newest_history(self._objects, place.topic_id)
        if newest > place.history:
            self.broken = HistoryBroken("another history of the tier-state topic has begun", history=newest)
        self.broken = self.broken or has_parted(self._objects, place.topic_id, place.history)
        self._asked_others = now

    def _compare(self, tier_partition: int, names: list[PieceName]) -> None:
        furthest = furthest_of(names)
        if furthest is not None:
            end = self._topic.end(tier_partition)
            anchor = self._anchor(tier_partition, furthest)
            why = f"the topic ends at {end}, below what is archived" if end <= furthest.last else None
            if why is None and anchor is not None:
                why = parted(self._topic, tier_partition, anchor)
            if why is not None and self._is_same_topic(tier_partition, furthest.last):
                self._part(tier_partition, furthest, why)
        self._compared[tier_partition] = None

    def _is_same_topic(self, tier_partition: int, position: Position) -> bool:
        """Return False for a re-created topic of this name: that is no divergence, and this process ends by itself."""
        self._topic.anchor_at(tier_partition, position)  # raises UnknownTopic: the leader knows it first
        return self._topic.current_topic_id() == self._topic.topic_id

    def _anchor(self, tier_partition: int, furthest: PieceName) -> Anchor | None:
        """Return the piece's anchor, by one small read per new piece. A piece of the first format is read fully."""
        key, anchor = self._ends.get(tier_partition, ("", None))
        if key != furthest.key:
            place = self._identity.place(tier_partition)
            anchor = anchor_in(read_header(self._objects, place, furthest))
            if anchor is None:
                anchor = read_piece(self._objects, place, furthest).anchor
            self._ends[tier_partition] = furthest.key, anchor
        return anchor

    def _part(self, tier_partition: int, furthest: PieceName, why: str) -> None:
        self.broken = self.broken or broken_history(self._identity.place(tier_partition), furthest, why)
        with suppress(Unavailable):  # the next check records it again; all other agents check, too
            say_parted(
                self._objects, self._identity.topic_id, self._identity.history, self._clock.now_ms(), str(self.broken)
            )


def broken_history(place: TierPlace, furthest: PieceName, why: str) -> HistoryBroken:
    return HistoryBroken(
        f"the tier-state topic has parted from its archive: {why}; nothing is deleted until a person says what counts: "
        "tierstate recover --begin-history",
        tier_partition=place.tier_partition,
        archived_to=furthest.last + 1,
        history=place.history,
    )


@dataclass(frozen=True, slots=True)
class Parting:
    """The result for one tier-state partition. ``common``: the last position with the same record in both, or None.

    ``at``: the first position above ``common`` at which the topic has another record or has ended. None means that they
    have not diverged. ``lost``: the archive's records above ``common``; empty if they have not diverged.
    """

    tier_partition: int
    common: Position | None
    at: Position | None
    archived_to: Position
    end: Position
    lost: tuple[ArchivedEntry, ...] = field(repr=False)


def find_parting(topic: TierTopic, shelf: Shelf[ObjectReader]) -> Parting:
    """Find where the topic and its archive diverge: both are read in parallel, record by record.

    Memory: the lost records. Raises CorruptData, BrokerUnavailable.
    """
    objects, tier_partition = shelf.objects, shelf.tier_partition
    end = topic.end(tier_partition)
    chain = chain_of(objects, shelf.place)
    records = _records(topic, tier_partition, chain.start, end)
    record = next(records, None)
    common, at, lost = None, None, list[ArchivedEntry]()
    for piece in read_archive(objects, chain):
        for archived in piece.entries:
            while record is not None and record.position < archived.position:
                record = next(records, None)
            if record == archived:
                common, at = archived.position, None
                lost.clear()
                continue
            lost.append(archived)
            differs = archived.position >= end or (record is not None and record.position == archived.position)
            at = archived.position if at is None and differs else at
    if at is None and chain.end > end:
        at = end  # from there on, the archive has only positions without a record
    return Parting(tier_partition, common, at, chain.end, end, tuple(lost) if at is not None else ())


def _records(topic: TierTopic, tier_partition: int, start: Position, end: Position) -> Iterator[ArchivedEntry]:
    if start >= end:
        return
    for batch in batches_until(topic.reader({tier_partition: start}), tier_partition, end):
        for entry, timestamp in zip(batch.entries, batch.timestamps or repeat(TimestampMs(-1)), strict=False):
            if entry.position < end:
                yield ArchivedEntry(entry, timestamp)


KIND = "history"
PARTED = "parted"
MAX_BYTES = 256 * 1024 * 1024
NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class HistoryHeader:
    """The header of both objects. ``at``: when the object was put (ms). The body of a history: segment ids as JSON."""

    topic_id: str
    number: int
    at: TimestampMs
    why: str
    body_bytes: int
    body_sha256: str


def newest_history(objects: ObjectReader, topic_id: str) -> int:
    """Return the number of the current history, which is the highest."""
    return max(numbers_under(objects, history_key(topic_id, 0)), default=0)


def places(objects: ObjectReader, history: int | None = None) -> list[TierPlace]:
    """Return the tier-state partitions with objects, of all topics. ``history`` None: each topic's newest history."""
    newest: dict[str, int] = {}
    partitions = first_places(objects)
    for place in partitions:
        if place.topic_id not in newest:
            newest[place.topic_id] = newest_history(objects, place.topic_id) if history is None else history
    return [replace(place, history=newest[place.topic_id]) for place in partitions]


def begin_history(
    objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str, left: Collection[RemoteSegmentId]
) -> None:
    """Make history ``number`` the current one. Raises InvalidRequest if this history has begun already."""
    body = orjson.dumps(sorted(left))
    header = HistoryHeader(topic_id, number, at, why, len(body), hashlib.sha256(body).hexdigest())
    try:
        objects.put_if_absent(history_key(topic_id, number), seal(KIND, header) + body)
    except ObjectExists as error:
        raise InvalidRequest("this history has begun already: look again", topic_id=topic_id, number=number) from error


def left_behind(objects: ObjectReader, topic_id: str, history: int | None = None) -> frozenset[RemoteSegmentId]:
    """Return the segments that only histories before ``history`` (None: the newest) knew. Raises CorruptData."""
    left = set[RemoteSegmentId]()
    for number in numbers_under(objects, history_key(topic_id, 0)):
        key = history_key(topic_id, number)
        data = objects.get(key, MAX_BYTES)
        header, start = unseal(data, KIND, HistoryHeader, source=key)
        body = data[start:]
        of_it = (header.topic_id, header.number, header.body_bytes, header.body_sha256)
        if of_it != (topic_id, number, len(body), hashlib.sha256(body).hexdigest()):
            raise CorruptData("history does not match its name or its hash", file=key)
        if history is None or number <= history:
            left.update(map(RemoteSegmentId, orjson.loads(body)))
    return frozenset(left)


def say_parted(objects: ObjectWriter, topic_id: str, number: int, at: TimestampMs, why: str) -> None:
    """Record that the topic is no longer of history ``number``, and that a person must decide."""
    header = HistoryHeader(topic_id, number, at, why, 0, NO_BODY)
    with suppress(ObjectExists):  # another process recorded it first
        objects.put_if_absent(parted_key(topic_id, number), seal(PARTED, header))


def has_parted(objects: ObjectReader, topic_id: str, number: int) -> HistoryBroken | None:
    """Return the recorded divergence from history ``number``, or None if none is recorded. Raises CorruptData."""
    key = parted_key(topic_id, number)
    try:
        header, _ = unseal(objects.get(key), PARTED, HistoryHeader, source=key)
    except ObjectNotFound:
        return None
    return HistoryBroken(header.why, history=number)


def archived_topics(objects: ObjectReader, history: int | None = None) -> list[ViewIdentity]:
    """Return the identity of each tier-state topic with an archive in the store, from the header of one of its pieces.

    ``history`` None means each topic's newest history. With an identity, an archive can be read when its cluster no
    longer exists. Raises CorruptData.
    """
    identities: dict[str, ViewIdentity] = {}
    for place in places(objects, history):
        if place.topic_id not in identities and (name := next(place.pieces(objects), None)) is not None:
            header = read_header(objects, place, name)
            identity = ViewIdentity(header.cluster_id, header.topic_id, header.partitions, history=place.history)
            identities[place.topic_id] = identity
    return list(identities.values())
