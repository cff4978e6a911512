"""Moves all objects to another store, while agents run and readers read (0108, `follower/move.py`).

    mirror  ->  mirror what changed  ->  moved  ->  every writer has stopped  ->  mirror the rest  ->  arrived

Until ``moved`` agents change the source as always. From ``moved`` on no process changes the source,
and readers still read it. From ``arrived``, the commit point, on agents and readers open the target. Each step can be
the last of a process: the next run begins with what both stores show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from ...follower.followed_store import WRITE_S
from ...follower.heartbeat import Heartbeat, read_heartbeat
from ...follower.move import (
    ARRIVED,
    ARRIVING,
    BEGUN,
    MOVED,
    Move,
    checked_until,
    read_move,
    write_checked,
    write_move,
)
from ...follower.object_names import AGENTS, LOCK, MOVE, OF_NO_SEGMENT, agents_prefix, is_heartbeat
from ...rules.prefix import SILENT_PERIODS
from ...runtime.clock import Clock
from ...runtime.operation import Operation
from ...state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ...state.object_keys import ObjectKind, base_of
from ...state.objects import ObjectInfo
from ...state.offsets import TimestampMs
from ...storage.mirror import AT_ONCE, Done, Mirror, Step, copy_object, is_same, merged
from ...storage.object_store import ObjectReader, ObjectStore
from ...storage.probe import PROBES
from ...storage.segment.in_order import Work, in_order
from ...storage.segment.manifest_json import MAX_MANIFEST_BYTES, parse_manifest

SKEW_MS = 2_000
"""Tolerance for the source's times, which may have whole seconds."""
MOST_PASSES = 5
"""Passes before the writers stop, if objects arrive faster than they are copied."""


def is_ours(key: str) -> bool:
    """Return whether an object below the prefix is tierstate's. Others are neither copied nor deleted."""
    return key.startswith(OF_NO_SEGMENT) or key.endswith(tuple(ObjectKind))


def _settled(key: str) -> bool:
    """Return whether the object may be copied at any time. Heartbeats change until their processes have stopped."""
    return _moves(key) and not key.startswith(AGENTS)


def _moves(key: str) -> bool:
    return is_ours(key) and key != LOCK and not key.startswith((MOVE, PROBES))


@dataclass(frozen=True, slots=True)
class Migration:
    """``require``: raises if this process no longer holds the source's lock, whose object also has the source's time.

    ``quiet``: waits until no process changes the source. ``tell`` gets the outcome for each object.
    """

    source: ObjectStore
    target: ObjectStore
    require: Callable[[], None]
    quiet: Callable[[], None]
    tell: Callable[[Step], None] = lambda step: None

    def steps(self, move: Move) -> Operation[Move]:
        """Make or continue ``move`` (`standing_move`). Raises InvalidRequest, CorruptData and the stores' errors."""
        if read_move(self.target, ARRIVED) == move:  # the target has writers now: no mirror may touch it
            return move
        yield "write arriving"
        write_move(self.target, self.target, ARRIVING, move)
        if read_move(self.source, MOVED) is None:  # the last pass copies heartbeats; agents delete those of ended ones
            self._require_alone()
        yield "write begun"
        write_move(self.source, self.source, BEGUN, move)
        for _ in range(MOST_PASSES):
            if (yield from self._mirrored(_settled)) <= AT_ONCE:
                break
        self.require()
        yield "write moved"
        # From here on no process changes the source: each looks for this object before it does (`movable_claim.py`).
        write_move(self.source, self.source, MOVED, move)
        yield "wait for the writers"
        self.quiet()
        yield from self._mirrored(_moves)
        self.require()
        yield "write arrived"
        # The commit point: from here on the target is the store. A mirror after this would undo changes.
        write_move(self.target, self.target, ARRIVED, move)
        return move

    def _mirrored(self, covers: Callable[[str], bool]) -> Operation[int]:
        """Mirror once. Return how many objects had to be copied."""
        begun, copied = self._source_time(), 0
        since = TimestampMs(checked_until(self.target) - SKEW_MS)
        for step in Mirror(self.source, self.target, covers, self.require).steps(since):
            copied += step.done in (Done.STREAMED, Done.BY_STORE)
            self.tell(step)
            yield f"{step.done}: {step.key}"
        yield "write checked"
        write_checked(self.target, begun)
        return copied

    def _source_time(self) -> TimestampMs:
        """Return a time of the source's clock that is not in the future. 0 without a lock."""
        try:
            return self.source.head(LOCK).modified_at
        except ObjectNotFound:
            return TimestampMs(0)

    def _require_alone(self) -> None:
        """Raise InvalidRequest if an agent began at the target before it could see that objects arrive there."""
        for info in self.target.list(AGENTS):
            try:
                self.source.head(info.key)
            except ObjectNotFound:
                raise InvalidRequest("agents write to the target: name an empty prefix", object_key=info.key) from None


def standing_move(source: ObjectStore, target: ObjectStore, new: Callable[[], Move]) -> Move:
    """Return the move of an earlier run from ``source`` to ``target``, else a new one.

    Raises InvalidRequest if the source moves to another target, or the target has objects that no move brought.
    """
    begun, arriving, fresh = read_move(source, BEGUN), read_move(target, ARRIVING), None
    if begun is None and arriving is None:
        taken = next((each.key for each in target.list() if is_ours(each.key)), None)
        if taken is not None:
            raise InvalidRequest("the target has objects: name an empty prefix", object_key=taken)
        fresh = new()
    move = begun or arriving or fresh
    assert move is not None
    if arriving not in (None, move) or move.source != source.description or move.target != target.description:
        raise other_move(move)
    return move


def other_move(move: Move) -> InvalidRequest:
    """Return the error of a move to another target than that of ``move``, which stands."""
    message = "another move stands here: end it first, or cancel it with --cancel"
    return InvalidRequest(message, source=move.source, target=move.target)


def cancel(source: ObjectStore, target: ObjectStore) -> Operation[Move]:
    """Take back a move that has not arrived. Agents go on at the source. The copies stay for another attempt.

    Raises InvalidRequest if no move has begun, or if its objects have arrived.
    """
    move = read_move(source, BEGUN)
    if move is None:
        raise InvalidRequest("no move has begun here", store=source.description)
    if read_move(target, ARRIVED) is not None:
        raise InvalidRequest("the objects have arrived, and agents write there", target=move.target)
    yield "delete heartbeats"
    target.delete_many([each.key for each in target.list(AGENTS)])
    yield "delete moved"
    source.delete(MOVED)
    yield "delete begun"
    source.delete(BEGUN)
    return move


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Deletes the old copies after a move. ``live``: base keys of all segments that readers may read now.

    Each old object is first compared with its copy. An object that the target lacks is copied if its segment is live,
    and deleted otherwise: an agent deleted its copy. An object of no segment stays unless its copy is equal.
    """

    source: ObjectStore
    target: ObjectStore
    live: Collection[str]
    require: Callable[[], None]

    def steps(self) -> Iterator[Step]:
        """Yield each deletion. Raises InvalidRequest before the objects have arrived, and CorruptData for a copy that
        differs. MOVED stays: it leads readers with the old URL to the target.
        """
        move = read_move(self.source, MOVED)
        if move is None or read_move(self.target, ARRIVED) != move:
            raise InvalidRequest("the objects have not arrived: run `tierstate migrate --to` first")
        yield from in_order(self._work(), AT_ONCE)
        self.require()
        self.source.delete(BEGUN)

    def _work(self) -> Iterator[Work[Step]]:
        for before, after in merged(self.source, self.target):
            if before is not None and _moves(before.key):
                yield partial(self._step, before, after)

    def _step(self, before: ObjectInfo, after: ObjectInfo | None, _: object) -> Step:
        key = before.key
        if not key.startswith(AGENTS):
            of_no_segment = key.startswith(OF_NO_SEGMENT)
            if of_no_segment and (after is None or not is_same(self.source, self.target, key)):
                return Step(Done.LEFT, key, before.size)
            if after is None and base_of(key) in self.live:
                self.require()
                copy_object(self.source, self.target, before)
            elif after is not None and not of_no_segment and not is_same(self.source, self.target, key):
                require_rotated(self.target, key)
        self.require()
        # The point without return for this object: its copy is proven, or no reader needs it.
        self.source.delete(key)
        return Step(Done.DELETED, key, before.size)


def require_rotated(target: ObjectReader, key: str) -> None:
    """Raise CorruptData unless this differing copy is a whole manifest: `tierstate keys rotate` replaces those."""
    if not key.endswith(ObjectKind.MANIFEST):
        raise CorruptData("the old and the new copy differ: nothing more is deleted", object_key=key)
    parse_manifest(target.get(key, MAX_MANIFEST_BYTES), source=key)


def wait_for_writers(
    source: ObjectReader, cluster_id: str, period_s: float, clock: Clock, tell: Callable[[str], None]
) -> None:
    """Wait until each process with a heartbeat in ``source`` has stopped, or was silent for so long that it must have.

    Processes without a heartbeat get `WRITE_S` to end a write that began before. ``tell`` gets the running processes,
    and an empty text when there are none any more.
    """
    began, before = clock.monotonic(), ""
    seen: dict[str, tuple[str, float]] = {}
    while True:
        running = []
        for beat in heartbeats(source, cluster_id):
            now = clock.monotonic()
            if beat.stopped or seen.get(beat.process, ("", now))[0] != beat.token:
                seen[beat.process] = beat.token, now
            if not beat.stopped and now - seen[beat.process][1] < SILENT_PERIODS * period_s:
                running.append(f"{beat.writer} at {beat.host}")
        if (names := ", ".join(running)) != before:
            tell(names)
            before = names
        if not running and clock.monotonic() - began >= WRITE_S:
            return
        clock.sleep(min(1.0, period_s))


def heartbeats(store: ObjectReader, cluster_id: str) -> Iterator[Heartbeat]:
    """Yield all heartbeats. Raises InvalidRequest for one of a cluster with another id, which shares the prefix."""
    for info in store.list(AGENTS):
        if not info.key.startswith(agents_prefix(cluster_id)):
            raise InvalidRequest("another cluster uses this prefix, too", object_key=info.key)
        if is_heartbeat(cluster_id, info.key) and (beat := read_heartbeat(store, info.key)) is not None:
            yield beat


@dataclass(slots=True)
class Extent:
    """The objects below a prefix. ``foreign``: those that are not tierstate's; they are neither copied nor deleted."""

    objects: int = 0
    bytes: int = 0
    foreign: int = 0


def extent_of(store: ObjectReader) -> Extent:
    extent = Extent()
    for info in store.list():
        if _moves(info.key):
            extent.objects += 1
            extent.bytes += info.size
        else:
            extent.foreign += not is_ours(info.key)
    return extent
