"""A store that follows its objects when they move (0108). Readers and commands open every store as one.

A read that misses an object looks for a move, and reads at the target once all objects have arrived there. A listing, a
signed URL and a write miss nothing by themselves, so they look first, at most every `LOOK_S` seconds. A write that took
longer than `migrate` waits for it, `WRITE_S`, looks again: the last pass may have missed what it wrote. A process that
listed or wrote at the source writes nothing at the target: the target may lack what that process read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, cast

from ..runtime.clock import Clock
from ..state.errors import UNNAMED_STORE, AccessDenied, InvalidRequest, ObjectNotFound, TierstateError, Unavailable
from ..state.offsets import ByteRange
from ..storage.object_store import MIB, ObjectStore
from .move import ARRIVED, MOVED, Move, read_move
from .object_names import OF_NO_SEGMENT
from .paired_stores import unnamed_pairs

LOOK_S = 5.0
WRITE_S = 2 * LOOK_S
"""The time from a look to the end of a write, for which `migrate` waits after it wrote MOVED."""
_READS = ("get", "get_range", "head", "drop_cached")
_WRITES = ("put_if_absent", "put_stream", "replace_if_same", "delete", "delete_many")
_LOOKS = ("list", "signed_url", "unfinished_uploads", "abort_upload")
OpenTarget = Callable[[Move], ObjectStore]


class FollowedStore:
    """Forwards every call by name to the store that has the objects. Thread-safe.

    ``open_target`` opens the target of a move. It raises InvalidRequest if the settings do not say how.
    """

    def __init__(self, store: ObjectStore, open_target: OpenTarget, clock: Clock) -> None:
        self._store, self._open_target, self._clock = store, open_target, clock
        self._opened = [store]
        self._targets: dict[Move, ObjectStore] = {}
        self._first: ObjectStore | None = None
        self._looked_s = float("-inf")
        self._is_moving = self._stays = False
        self.topic_stores: Collection[str] = ()
        """URLs of the stores of topics that the settings name."""
        self._looking = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name == "read_into" and hasattr(self._opened[0], name):
            return self._read_into
        attribute = getattr(self._store, name)
        if name in _READS:
            return partial(self._read, name)
        if name in _WRITES or name in _LOOKS:
            return partial(self._fresh, name)
        return attribute

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        store, position = self._store, range.start
        try:
            for piece in store.stream_range(key, range, piece_bytes):
                position += len(piece)
                yield piece
        except ObjectNotFound:
            if not self._moved_from(store):
                raise
            yield from self.stream_range(key, ByteRange(position, range.stop), piece_bytes)

    def close(self) -> None:
        for store in self._opened:
            store.close()

    @property
    def here(self) -> ObjectStore:
        """The store that has the objects now, which follows no move."""
        return self._store

    def look(self) -> bool:
        """Look for a move now, and follow it if all objects have arrived. Return whether this store changed."""
        with self._looking:
            before, began_s = self._store, self._clock.monotonic()
            while not self._stays and (target := self._arrived()) is not None:
                self._store = target
            self._looked_s = began_s
            return self._store is not before

    def stay(self, *, here: bool = False) -> None:
        """Follow a move now, and none later: a process that changes the bucket starts again after a move.

        ``here``: do not follow one now, either.
        """
        if self._stays:
            return
        self._stays = here
        try:
            self.look()
        finally:
            self._stays = True

    def has_moved(self) -> bool:
        """Return whether all objects have moved from here, for a process whose store stays.

        Also True if they move to a store that these settings do not name: the process starts again with newer ones.
        """
        with self._looking:
            try:
                return self._arrived() is not None
            except InvalidRequest:
                return True

    def _arrived(self) -> ObjectStore | None:
        try:
            move = read_move(self._store, MOVED)
        except AccessDenied:  # credentials that read segments only: their owner names the new store
            move = None
        self._is_moving = move is not None
        if move is None:
            return None
        if move not in self._targets:
            self._targets[move] = self._open_target(move)
            self._opened.append(self._targets[move])
        target = self._targets[move]
        return target if read_move(target, ARRIVED) == move else None

    def _moved_from(self, store: ObjectStore) -> bool:
        return self._store is not store or self.look()

    def _read(self, name: str, key: str, *arguments: Any, **named: Any) -> Any:
        store = self._store
        try:
            return getattr(store, name)(key, *arguments, **named)
        except ObjectNotFound as error:
            if not self._moved_from(store):
                self._add_unnamed(key, error)
                raise
        return self._read(name, key, *arguments, **named)

    def _add_unnamed(self, key: str, error: ObjectNotFound) -> None:
        """Add the store of topics to ``error`` that no setting names: this object of a segment may be there."""
        if not key.startswith(OF_NO_SEGMENT):
            with suppress(TierstateError):
                for _, pair in unnamed_pairs(self._store, self.topic_stores):
                    error.facts[UNNAMED_STORE] = pair.url

    def _read_into(self, key: str, start: int, target: memoryview) -> int:
        """Do the same as the folder that was opened first (`NearStore`), also after its objects moved to a cloud."""
        store = self._store
        try:
            if hasattr(store, "read_into"):
                return int(store.read_into(key, start, target))
            data = store.get_range(key, ByteRange(start, start + len(target)))
        except ObjectNotFound:
            if not self._moved_from(store):
                raise
            return self._read_into(key, start, target)
        target[: len(data)] = data
        return len(data)

    def _fresh(self, name: str, *arguments: Any, **named: Any) -> Any:
        if not self._stays and self._clock.monotonic() - self._looked_s >= LOOK_S:
            self.look()
        store, looked_s = self._store, self._looked_s
        self._first = self._first or store
        if name in _WRITES and not self._stays and (self._is_moving or store is not self._first):
            raise self._moving()
        answer = getattr(store, name)(*arguments, **named)
        if name in _WRITES and not self._stays and self._is_late(looked_s):
            self.look()
            if self._is_moving or self._store is not store:
                raise self._moving()
        return answer

    def _is_late(self, looked_s: float) -> bool:
        return self._clock.monotonic() - looked_s >= WRITE_S

    def _moving(self) -> Unavailable:
        return Unavailable(
            "the objects move to another store: tierstate migrate ends or cancels that; then run this again",
            store=self.description,
        )


def following(store: ObjectStore, open_target: OpenTarget, clock: Clock) -> ObjectStore:
    """Return a store with the same promises that follows its objects."""
    return cast(ObjectStore, FollowedStore(store, open_target, clock))
