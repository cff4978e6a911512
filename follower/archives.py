"""Checks how far each tier-state partition is archived, and whether topic and archive still have the same history.

Every agent checks this before it decides, not only the agent that writes the archive. While the archive has records
that the topic lost, no agent may erase or delete. An agent that sees a divergence records it for all others. A rule
marked * prevents a loss that a model or a review found.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import Event, FactsApplied
from ..state.errors import Fenced, HistoryBroken, TierstateError, Unavailable
from ..state.offsets import Position
from ..state.view import Anchor
from ..storage.object_store import ObjectStore
from .archive_chain import START, furthest_of, reached_by, read_header, read_piece
from .archive_piece import WINDOW, anchor_in
from .histories import has_parted, newest_history, say_parted
from .object_names import PieceName, TierPlace
from .rocksdb_view import ViewIdentity
from .same_history import parted

LOOK_S = 60.0
NOT_YET = "topic and archive have not been compared yet"


class Archives:
    """This process's knowledge of one topic's archives in one history. Positions never decrease. Thread-safe."""

    def __init__(
        self,
        topic: TierTopic,
        objects: ObjectStore,
        identity: ViewIdentity,
        clock: Clock,
        every_s: float = LOOK_S,
    ) -> None:
        self._topic, self._objects, self._identity, self._clock = topic, objects, identity, clock
        self._every_s = every_s
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._positions: dict[int, Position] = {}
        self._asked_at: dict[int, float] = {}
        self._ends: dict[int, tuple[str, Anchor | None]] = {}
        self._compared: dict[int, str | None] = {}
        self._broken: HistoryBroken | None = None
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
        broken = self._broken
        return str(broken) if broken is not None else self._compared.get(tier_partition, NOT_YET)

    @property
    def broken(self) -> HistoryBroken | None:
        """The divergence that a person must resolve. Once seen, it stays as long as the process runs."""
        return self._broken

    def check(self, tier_partition: int) -> None:
        """Compare topic and archive now. Raises HistoryBroken, and the errors of store and broker."""
        with self._looking:
            self._look(tier_partition)
        if self._broken is not None:
            raise self._broken

    def check_over(self) -> None:
        """Raise Fenced if a person began another history: this process cannot continue in that history."""
        if self._broken is None:
            return
        newest = newest_history(self._objects, self._identity.topic_id)
        if newest > self._identity.history:
            raise Fenced(
                "another history of the tier-state topic has begun: this process must be started again", history=newest
            )

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
            self._broken = HistoryBroken("another history of the tier-state topic has begun", history=newest)
        self._broken = self._broken or has_parted(self._objects, place.topic_id, place.history)
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
        self._broken = self._broken or broken_history(self._identity.place(tier_partition), furthest, why)
        with suppress(Unavailable):  # the next check records it again; all other agents check, too
            say_parted(
                self._objects,
                self._identity.topic_id,
                self._identity.history,
                self._clock.now_ms(),
                str(self._broken),
            )


def broken_history(place: TierPlace, furthest: PieceName, why: str) -> HistoryBroken:
    """Return the error that names the archive, and how the topic diverged from it."""
    return HistoryBroken(
        f"the tier-state topic has parted from its archive: {why}; nothing is deleted until a person says what counts: "
        "tierstate recover --begin-history",
        tier_partition=place.tier_partition,
        archived_to=furthest.last + 1,
        history=place.history,
    )
