"""Moves old segments of topics to the stores that `store.topics` names now, while agents run and readers read.

Readers look in both stores. So a segment is first copied and proven, and its old copy is deleted by a later run, which
compares both once more. Objects of unfinished copies stay. Each step can be the last of a process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...follower.paired_stores import PairedStore
from ...state.errors import InvalidRequest, ObjectExists, ObjectNotFound
from ...state.object_keys import base_of, folder_of, not_own
from ...state.objects import ObjectInfo
from ...state.partition_view import PartitionView
from ...state.segment import SegmentState
from ...storage.mirror import AT_ONCE, Done, Step, copy_object, is_same
from ...storage.object_store import ObjectStore
from ...storage.routed import RoutedStore
from ...storage.segment.in_order import in_order
from ..opening.connection import Connection, view_now
from ..opening.partitions import partitions_with_facts
from .migration import Extent, require_rotated
from .prefix_lock import locked
from .topic_stores import require_every_store


@dataclass(frozen=True, slots=True)
class TopicMove:
    """``routed``: the store of all objects. ``default``: its default store, without the one that follows a move.

    ``finished``: base keys of the segments to move. ``is_live``: whether the newest facts still have one of them.
    ``require``: raises if this process must stop.
    """

    routed: RoutedStore
    default: ObjectStore
    finished: Collection[str]
    is_live: Callable[[str], bool]
    require: Callable[[], None] = lambda: None

    def misplaced(self) -> Iterator[tuple[ObjectStore, ObjectStore, ObjectInfo]]:
        """Yield (old store, new store, object) for each object that is in another store than its rule names."""
        for folder, (target, *others) in self._folders():
            for source in others:
                for info in source.list(folder):
                    if base_of(info.key) in self.finished and info.key != base_of(info.key):
                        yield self._bare(source), self._bare(target), info

    def pair(self) -> None:
        """Pair the stores of topics that the steps change, as `PairedStore.pair`."""
        for store in {store for _, stores in self._folders() for store in stores}:
            if isinstance(store, PairedStore):
                store.pair()

    def _folders(self) -> Iterator[tuple[str, tuple[ObjectStore, ...]]]:
        for folder in sorted({folder_of(base) for base in self.finished}):
            next(iter(self.routed.list(folder)), None)  # looks for objects in stores that no rule names
            yield folder, self.routed.holders(folder)

    def steps(self, *, finish: bool) -> Iterator[Step]:
        """Copy and prove the objects. ``finish``: also delete the old copies. Raises CorruptData, stores' errors."""
        act = self._delete if finish else self._copy
        return in_order((partial(act, *each) for each in self.misplaced()), AT_ONCE)

    def _bare(self, store: ObjectStore) -> ObjectStore:
        if store is self.routed.stores[0]:
            return self.default
        return store.bare if isinstance(store, PairedStore) else store

    def _copy(self, source: ObjectStore, target: ObjectStore, info: ObjectInfo, _: object) -> Step:
        self.require()
        with suppress(ObjectNotFound):
            if not is_same(source, target, info.key):
                require_rotated(target, info.key)
            return Step(Done.PROVEN, info.key, info.size)
        try:
            done = copy_object(source, target, info)
        except ObjectNotFound:
            return Step(Done.GONE, info.key, 0)
        except ObjectExists:  # an attempt whose answer was lost
            return self._copy(source, target, info, None)
        try:
            source.head(info.key)
        except ObjectNotFound:
            if not self.is_live(base_of(info.key)):  # an agent deleted the segment, maybe before its copy was there
                self.require()
                target.delete(info.key)
                return Step(Done.GONE, info.key, 0)
        return Step(done, info.key, info.size)

    def _delete(self, source: ObjectStore, target: ObjectStore, info: ObjectInfo, stop: object) -> Step:
        step = self._copy(source, target, info, stop)
        self.require()
        if step.done is not Done.GONE:
            # The point without return for this object: the new copy is proven.
            source.delete(info.key)
        return Step(Done.DELETED, info.key, info.size)


def move_topics(
    connection: Connection, pattern: str, tell: Callable[[Step], None], *, finish: bool, execute: bool
) -> dict[tuple[str, str], Extent]:
    """Copy, or with ``finish`` delete, the misplaced objects of topics that match. Return what was misplaced before, by
    the URLs of old and new store.

    Raises InvalidRequest if no rule names a store, Fenced if another command runs, CorruptData, and stores' errors.
    """
    routed = connection.store
    if not isinstance(routed, RoutedStore):
        raise InvalidRequest("no setting names a store of topics: store.topics", pattern=pattern)
    connection.followed.stay()
    follower, topics = connection.view(), re.compile(pattern)
    views = map(follower.partition, partitions_with_facts(follower, None, None))
    finished = {base: view.partition for view in views if topics.fullmatch(view.topic or "") for base in _bases(view)}

    def is_live(base: str) -> bool:
        return base in _bases(view_now(follower, finished[base]))

    move, quote = TopicMove(routed, connection.followed.here, finished, is_live), dict[tuple[str, str], Extent]()
    for source, target, info in move.misplaced():
        extent = quote.setdefault((source.description, target.description), Extent())
        extent.objects += 1
        extent.bytes += info.size
    if execute:
        with locked(connection, "migrate --topic") as lock:
            require_every_store(connection)
            move.pair()
            for step in replace(move, require=lock.require).steps(finish=finish):
                tell(step)
    return quote


def _bases(view: PartitionView) -> set[str]:
    """Return the base keys of the finished segments."""
    return {
        segment.subject.object_key
        for segment in view.in_state(SegmentState.COPY_SEGMENT_FINISHED)
        if segment.subject is not None and not_own(segment.subject) is None
    }
