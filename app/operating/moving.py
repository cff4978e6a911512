"""Opens both stores of a move, and carries it out under the lock of the old one (`migration.py` has the steps)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from ...fetch.read_price import GET_PRICE, PUT_PRICE
from ...follower.heartbeat import sign
from ...follower.move import ARRIVED, BEGUN, MOVED, Move, read_move
from ...runtime.id_source import RandomIds
from ...runtime.operation import run
from ...state.errors import InvalidRequest
from ...state.ids import FactId
from ...state.segment import SegmentState
from ...storage.mirror import Step, copies_from
from ...storage.object_store import DEFAULT_PART_BYTES, ObjectStore
from ..opening.connection import Connection
from ..opening.moved import place_of
from ..opening.partitions import partitions_with_facts
from .migration import (
    Cleanup,
    Extent,
    Migration,
    cancel,
    extent_of,
    heartbeats,
    other_move,
    standing_move,
    wait_for_writers,
)
from .orders import issuer
from .prefix import check_prefix
from .prefix_lock import locked

LIVE = (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED, SegmentState.ABANDONED)
"""The states of segments whose objects must not be missing at the target."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The extent of a move. ``price``: US dollars for requests to S3; the transfer out of a region costs extra."""

    extent: Extent
    by_store: bool
    price: float
    state: str
    writers: list[str]


@dataclass(frozen=True, slots=True)
class Moving:
    """A move of the objects of ``connection``, whose store stays at the source, to ``target``.

    ``tell`` gets each object that was handled, ``waits`` the names of processes that must stop first.
    """

    connection: Connection
    target: ObjectStore
    tell: Callable[[Step], None]
    waits: Callable[[str], None]

    @property
    def _source(self) -> ObjectStore:
        return self.connection.followed.here

    def quote(self) -> Quote:
        """Return what the move takes. Raises PrefixContested, and InvalidRequest if two clusters use the prefix."""
        check_prefix(self.connection)
        beats = heartbeats(self._source, self.connection.cluster_id)
        writers = [f"{beat.writer} at {beat.host}" for beat in beats if not beat.stopped]
        extent, by_store = extent_of(self._source), copies_from(self.target, self._source)
        parts = 0 if by_store else extent.bytes // DEFAULT_PART_BYTES
        gets = extent.objects * (4 if by_store else 3)  # the copy is compared with its source, and again by --finish
        puts = extent.objects + parts + 6 * (extent.objects // 1000 + 1)
        return Quote(extent, by_store, gets * GET_PRICE + puts * PUT_PRICE, self.state, writers)

    @property
    def state(self) -> str:
        """The state of the move: none, begun, moved or arrived."""
        move = read_move(self._source, MOVED)
        if move is None:
            return "none" if read_move(self._source, BEGUN) is None else "begun"
        return "arrived" if read_move(self.target, ARRIVED) == move else "moved"

    def execute(self) -> Move:
        """Make or continue the move. Raises Fenced if another command runs, and as `Migration.steps`."""
        connection, source = self.connection, self._source
        with locked(connection, "migrate") as lock:
            move = standing_move(source, self.target, self._new_move)
            return run(Migration(source, self.target, lock.require, self._quiet, self.tell).steps(move))

    def cancel(self) -> Move:
        with locked(self.connection, "migrate --cancel"):
            return run(cancel(self._source, self.target))

    def finish(self) -> None:
        """Delete the old copies, as `Cleanup` does. An agent of an earlier release that still writes is waited for."""
        with locked(self.connection, "migrate --finish") as lock:
            self._quiet()
            follower = self.connection.view()
            views = map(follower.partition, partitions_with_facts(follower, None, None))
            segments = (segment for view in views for state in LIVE for segment in view.in_state(state))
            live = {segment.subject.object_key for segment in segments if segment.subject is not None}
            for step in Cleanup(self._source, self.target, live, lock.require).steps():
                self.tell(step)

    def _quiet(self) -> None:
        connection, period_s = self.connection, self.connection.settings.prefix.heartbeat
        wait_for_writers(self._source, connection.cluster_id, period_s, connection.clock, self.waits)

    def _new_move(self) -> Move:
        connection = self.connection
        process = FactId.of(RandomIds().uuid())
        record = sign(connection.topic, process)
        options = getattr(self.target, "options", None)
        return Move(
            process,
            self._source.description,
            self.target.description,
            getattr(options, "endpoint", None) or "",
            getattr(options, "region", None) or "",
            connection.topic.topic_id,
            record.position,
            record.sha256,
            issuer(),
            connection.clock.now_ms(),
        )


@contextmanager
def moving(
    connection: Connection,
    url: str | None,
    tell: Callable[[Step], None],
    waits: Callable[[str], None],
    *,
    make: bool,
) -> Iterator[Moving]:
    """Yield the move to ``url``, or the one that stands (None). ``make``: create the folder of a file store.

    Raises InvalidRequest if no move stands and no target is named, if the target is the source, or if the move that
    stands has another target.
    """
    connection.followed.stay(here=True)
    source, settings = connection.followed.here, connection.settings
    standing = read_move(source, MOVED) or read_move(source, BEGUN)
    url = url or (standing.target if standing else settings.next_store.url)
    if not url:
        raise InvalidRequest("no move has begun here: name the target with --to URL", store=source.description)
    region = settings.store.region or None
    with closing(place_of(settings).target(url, region, connection.clock, make=make)) as target:
        one, other = f"{source.description}/", f"{target.description}/"
        if one.startswith(other) or other.startswith(one):
            raise InvalidRequest("one prefix contains the other: name another bucket or prefix", target=url)
        if standing is not None and target.description != standing.target:
            if read_move(source, BEGUN) is None:  # `Cleanup` deletes it last
                raise InvalidRequest(
                    "these objects have moved: set store.url to where they are", target=standing.target
                )
            raise other_move(standing)
        yield Moving(connection, target, tell, waits)
