"""The seam: what tierstate asks of any object store. `contract.py` says and checks every promise.

Reader, writer, uploads: a function takes the smallest of them that it uses. Implementations of all three: `memory.py`
(the twin), `directory.py`, `s3.py`, `gcs.py`, `azure.py`. All are synchronous and thread-safe.

Errors an implementation may raise, and nothing else: ObjectNotFound, ObjectExists, RangeNotSatisfiable, InvalidRequest,
AccessDenied, Throttled, StorageFull, StorageUnavailable, CorruptData (the store answered what was not asked).
After StorageUnavailable or Throttled from a write the outcome is unknown: the object may exist, whole, never in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ..state.errors import InvalidRequest
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import ByteRange

MIB = 1024 * 1024
DEFAULT_PART_BYTES = 8 * MIB

Data = bytes | bytearray | memoryview


class RangeNotSatisfiable(InvalidRequest):
    """A range begins at or past the end of its object."""


class ObjectReader(Protocol):
    """What is there. Keys are relative to the store's URL."""

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

    def drop_cached(self, key: str) -> None:
        """The next read gets the store's own bytes, not those that this host has in memory. Raises ObjectNotFound."""
        ...


class ObjectWriter(Protocol):
    """Objects made and deleted. None is overwritten, but by `replace_if_same`."""

    def put_if_absent(self, key: str, data: Data) -> None:
        """One object, whole or not at all. Raises ObjectExists when the key is taken."""
        ...

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        """One object from pieces of any size; returns its bytes. Nobody sees it before it is complete.

        A piece is not used after the next one is asked for. Memory is bounded by parts in flight, whatever the
        object's size. Whatever fails, the iterator included, aborts the upload. Raises ObjectExists.
        """
        ...

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        """Overwrites one small object whose content is ``previous``: for the rotation of keys (`rotate.py`) alone.

        Readers see the old object or the new one, whole. False when its content is another by now: nothing was done.
        Raises ObjectNotFound when it is gone; it does not come back.
        """
        ...

    def delete(self, key: str) -> None:
        """Idempotent: a missing object is no error."""
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """In batches where the store has them, in no promised order. Idempotent."""
        ...


class ObjectUploads(Protocol):
    """What large puts that never ended have left."""

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Uploads of keys below ``prefix`` that were begun and neither completed nor aborted, whoever began them.

        One that is running right now is among them where the store cannot tell: judge by ``started_at``. Those without
        a key are told only for the empty prefix. A store that removes them by itself yields none.
        """
        ...

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Removes what was uploaded of it. Idempotent; an upload that completed meanwhile keeps its object."""
        ...


class ObjectStore(ObjectReader, ObjectWriter, ObjectUploads, Protocol):
    """All of it, as `open_store` gives it: for who reads and writes, and who opens and closes."""

    @property
    def description(self) -> str:
        """The store's URL, without secrets."""
        ...

    def close(self) -> None:
        """Releases connections; idempotent."""
        ...


def beyond_end(key: str, range: ByteRange, size: int | None) -> RangeNotSatisfiable:
    return RangeNotSatisfiable("range begins past the end of the object", key=key, start=range.start, size=size)


def over_limit(key: str, size: int, limit: int) -> InvalidRequest:
    return InvalidRequest("object is larger than expected", key=key, size=size, limit=limit)
