"""Makes one store a mirror of another: copies what is missing, deletes what the source no longer has, proves the rest.

Both listings are merged in key order, so memory does not grow with the number of objects. A copy counts once the
CRC-32C of both sides is equal. The target must have no other writer and no reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, runtime_checkable

from ..state.errors import CorruptData, ObjectExists, ObjectNotFound
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange, TimestampMs
from .crc32c import extended
from .object_store import MIB, ObjectReader, ObjectStore
from .segment.in_order import in_order

AT_ONCE = 16
"""Objects that are copied at a time. So many small ones share a commit of a file system's journal."""
SMALL_BYTES = MIB
_large = threading.BoundedSemaphore(8)
"""Objects above `SMALL_BYTES` that are streamed at a time. In a folder, more of them slow each other down."""


class Done(StrEnum):
    """The outcome for one object."""

    STREAMED = "streamed"
    BY_STORE = "copied by the store"
    PROVEN = "proven"
    DELETED = "deleted"
    GONE = "deleted at the source meanwhile"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Step:
    done: Done
    key: str
    bytes: int


@runtime_checkable
class CopiesObjects(Protocol):
    """A store that copies objects of another one without sending their bytes through this machine."""

    def reaches(self, source: ObjectStore) -> bool:
        """Return whether ``source`` has the same provider and endpoint."""
        ...

    def copy_from(self, source: ObjectStore, key: str) -> bool:
        """Copy one object, with a checksum of its own. Returns False if this store cannot copy from ``source``.

        Raises ObjectNotFound if the source has no such object, ObjectExists, and the errors of writes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mirror:
    """``covers`` selects the keys. ``require`` is called before each change; it raises if this process must stop."""

    source: ObjectStore
    target: ObjectStore
    covers: Callable[[str], bool]
    require: Callable[[], None] = lambda: None

    def steps(self, since: TimestampMs) -> Iterator[Step]:
        """Mirror all objects once, and yield each change. Objects of the same size on both sides are compared only if
        the source wrote them at ``since`` or later.

        Raises CorruptData for a copy that stays unequal, and the stores' errors. It can be stopped and begun again.
        """
        return in_order((partial(_call, work) for work in self._work(since)), AT_ONCE)

    def _work(self, since: TimestampMs) -> Iterator[Callable[[], Step]]:
        for before, after in merged(self.source, self.target):
            if before is None:
                if after is not None and self.covers(after.key):
                    yield partial(self._delete, after)
            elif self.covers(before.key):
                if after is None:
                    yield partial(self._copy, before)
                elif before.size != after.size or before.modified_at >= since:
                    yield partial(self._compare, before)

    def _delete(self, after: ObjectInfo) -> Step:
        self.require()
        self.target.delete(after.key)
        return Step(Done.DELETED, after.key, 0)

    def _copy(self, before: ObjectInfo) -> Step:
        self.require()
        try:
            done = copy_object(self.source, self.target, before)
        except ObjectNotFound:
            return Step(Done.GONE, before.key, 0)
        except ObjectExists:  # an attempt whose answer was lost
            return self._compare(before)
        return Step(done, before.key, before.size)

    def _compare(self, before: ObjectInfo) -> Step:
        with suppress(ObjectNotFound):
            if is_same(self.source, self.target, before.key):
                return Step(Done.PROVEN, before.key, before.size)
        self.require()
        self.target.delete(before.key)  # a rotated manifest: no process reads the target yet
        return self._copy(before)


def _call(work: Callable[[], Step], _: object) -> Step:
    return work()


def merged(source: ObjectReader, target: ObjectReader) -> Iterator[tuple[ObjectInfo | None, ObjectInfo | None]]:
    """Yield the objects of both stores in key order, in pairs of the same key; None where a store lacks the key."""
    sides = source.list(), target.list()
    before, after = next(sides[0], None), next(sides[1], None)
    while before is not None or after is not None:
        key = min(each.key for each in (before, after) if each is not None)
        pair = before if before and before.key == key else None, after if after and after.key == key else None
        yield pair
        before = _following(sides[0], before) if pair[0] else before
        after = _following(sides[1], after) if pair[1] else after


def _following(listing: Iterator[ObjectInfo], last: ObjectInfo | None) -> ObjectInfo | None:
    """Return the next object. A listing out of order would let an object pass for deleted."""
    following = next(listing, None)
    if following is not None and last is not None and following.key <= last.key:
        raise CorruptData("the store's listing is not in key order", key=following.key, after=last.key)
    return following


def copies_from(target: ObjectStore, source: ObjectStore) -> bool:
    """Return whether the target can copy objects of ``source`` by itself."""
    return isinstance(target, CopiesObjects) and target.reaches(source)


def copy_object(source: ObjectStore, target: ObjectStore, info: ObjectInfo) -> Done:
    """Copy one object and prove the copy. A copy that is not equal is deleted. Raises CorruptData, ObjectExists,
    ObjectNotFound for the source.
    """
    # A checksum that the source does not keep is made of its bytes, by streaming.
    kept = source.head(info.key).crc32c if copies_from(target, source) else None
    if kept is not None and isinstance(target, CopiesObjects) and target.copy_from(source, info.key):
        done, same = Done.BY_STORE, kept == target.head(info.key).crc32c or is_same(source, target, info.key)
    else:
        checksum = _streamed(source, target, info)
        copy = target.head(info.key)
        same = checksum == copy.crc32c or checksum == _checksum_as_read(target, copy)
        done = Done.STREAMED
    if not same:
        target.delete(info.key)
        raise CorruptData("the copy has other bytes than its source", object_key=info.key)
    return done


def _streamed(source: ObjectStore, target: ObjectStore, info: ObjectInfo) -> int:
    """Copy the bytes, those of a small object by one request each way. Return the CRC-32C of the source's bytes."""
    checksum = 0
    if info.size <= SMALL_BYTES:
        data = source.get(info.key)
        target.put_if_absent(info.key, data)
        return extended(checksum, data)

    def pieces() -> Iterator[bytes]:
        nonlocal checksum
        for piece in source.stream_range(info.key, ByteRange(0, info.size)):
            checksum = extended(checksum, piece)
            yield piece

    with _large:
        target.put_stream(info.key, pieces())
    return checksum


def is_same(source: ObjectStore, target: ObjectStore, key: str) -> bool:
    """Return whether both objects have the same CRC-32C: as the stores keep it, else of their bytes as read now.

    Raises ObjectNotFound.
    """
    one, other = source.head(key), target.head(key)
    if one.crc32c is not None and one.crc32c == other.crc32c:
        return True
    return _checksum_as_read(source, one) == _checksum_as_read(target, other)


def _checksum_as_read(store: ObjectReader, info: ObjectInfo) -> int:
    store.drop_cached(info.key)
    checksum = 0
    for piece in store.stream_range(info.key, ByteRange(0, info.size)) if info.size else ():
        checksum = extended(checksum, piece)
    return checksum
