"""The seam: what tierstate asks of any object store. `contract.py` says and checks every promise.

Implementations: `memory.py` (the twin), `directory.py`, `s3.py`. All are synchronous and thread-safe.

Errors an implementation may raise, and nothing else: ObjectNotFound, ObjectExists, RangeNotSatisfiable, InvalidRequest,
AccessDenied, Throttled, StorageFull, StorageUnavailable, CorruptData (the store answered what was not asked).
After StorageUnavailable or Throttled from a write the outcome is unknown: the object may exist, whole, never in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..state.errors import InvalidRequest
from ..state.offsets import ByteRange, TimestampMs

MIB = 1024 * 1024
DEFAULT_PART_BYTES = 8 * MIB
MAX_KEY_BYTES = 1024
"""S3's limit, prefix of the store's URL included."""
TEMPORARY_FOLDER = ".tierstate-tmp"
"""Where `directory.py` keeps unfinished objects; no key may begin with it, in any store."""

Data = bytes | bytearray | memoryview


class RangeNotSatisfiable(InvalidRequest):
    """A range begins at or past the end of its object."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. ``size`` in bytes; ``modified_at`` by the store's clock, milliseconds since the epoch."""

    key: str
    size: int
    modified_at: TimestampMs


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """What an upload that has not ended yet left in the store: no object, nobody sees it, but it may cost money.

    ``key`` as it was given to `put_stream`; empty when the store does not keep it. ``upload_id``: the store's own name.
    """

    key: str
    upload_id: str
    started_at: TimestampMs


class ObjectStore(Protocol):
    """Keys are relative to the store's URL. No object is overwritten, but by `replace_if_same`."""

    @property
    def description(self) -> str:
        """The store's URL, without secrets."""
        ...

    def put_if_absent(self, key: str, data: Data) -> None:
        """One object, whole or not at all. Raises ObjectExists when the key is taken."""
        ...

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        """One object from pieces of any size; returns its bytes. Nobody sees it before it is complete.

        A piece is not used after the next one is asked for. Memory is bounded by parts in flight, whatever the
        object's size. Whatever fails, the iterator included, aborts the upload. Raises ObjectExists.
        """
        ...

    def get(self, key: str, limit: int | None = None) -> bytes:
        """The whole object. Raises InvalidRequest when it has more than ``limit`` bytes, without reading it."""
        ...

    def get_range(self, key: str, range: ByteRange) -> bytes:
        """Bytes of the object; a stop past the end is clamped, a start there raises RangeNotSatisfiable."""
        ...

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """`get_range` in pieces of at most ``piece_bytes``; memory is bounded by one piece."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """Raises ObjectNotFound."""
        ...

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object whose key begins with the text ``prefix``, in key order, fetched page by page."""
        ...

    def delete(self, key: str) -> None:
        """Idempotent: a missing object is no error."""
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """In batches where the store has them, in no promised order. Idempotent."""
        ...

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        """Overwrites one small object whose content is ``previous``: for the rotation of keys (`rotate.py`) alone.

        Readers see the old object or the new one, whole. False when its content is another by now: nothing was done.
        Raises ObjectNotFound when it is gone; it does not come back.
        """
        ...

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Uploads of keys below ``prefix`` that were begun and neither completed nor aborted, whoever began them.

        One that is running right now is among them where the store cannot tell: judge by ``started_at``. Those without
        a key are told only for the empty prefix. A store that removes them by itself yields none.
        """
        ...

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Removes what was uploaded of it. Idempotent; an upload that completed meanwhile keeps its object."""
        ...

    def close(self) -> None:
        """Releases connections; idempotent."""
        ...


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def checked_key(key: str) -> str:
    """``key`` itself. Raises InvalidRequest for one that some store would refuse, normalise or hide."""
    parts = key.split("/")
    if not key or "" in parts:
        raise InvalidRequest("an object key has no empty parts", key=repr(key))
    if "." in parts or ".." in parts:
        raise InvalidRequest("an object key has no parts '.' or '..'", key=repr(key))
    if parts[0] == TEMPORARY_FOLDER:
        raise InvalidRequest("this key prefix is reserved for unfinished objects", key=repr(key))
    if _CONTROL.search(key):
        raise InvalidRequest("an object key has no control characters", key=repr(key))
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest("an object key is valid Unicode", key=repr(key)) from error
    if length > MAX_KEY_BYTES:
        raise InvalidRequest("object key is too long", key=repr(key), bytes=length, limit=MAX_KEY_BYTES)
    return key


def beyond_end(key: str, range: ByteRange, size: int | None) -> RangeNotSatisfiable:
    return RangeNotSatisfiable("range begins past the end of the object", key=key, start=range.start, size=size)


def over_limit(key: str, size: int, limit: int) -> InvalidRequest:
    return InvalidRequest("object is larger than expected", key=key, size=size, limit=limit)
