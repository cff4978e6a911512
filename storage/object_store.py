"""The interface that tierstate needs from any object store. `contract.py` states and checks every promise.

A function takes the smallest protocol that it uses: reader, writer or uploads. Implementations of all three:
`memory.py` (the in-memory twin), `directory.py`, `s3.py`, `gcs.py`, `azure.py`. All are synchronous and thread-safe.

Implementations raise only these errors: ObjectNotFound, ObjectExists, RangeNotSatisfiable, InvalidRequest,
AccessDenied, Throttled, StorageFull, StorageUnavailable, CorruptData (the answer does not match the request).
After StorageUnavailable or Throttled from a write, its outcome is unknown: the object may exist, whole, never in part.
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
    """Reads and lists objects. Keys are relative to the store's URL."""

    def get(self, key: str, limit: int | None = None) -> bytes:
        """Return the whole object. Raises InvalidRequest, without reading it, when it has more than ``limit`` bytes."""
        ...

    def get_range(self, key: str, range: ByteRange) -> bytes:
        """Return a range of bytes. A stop past the end is clamped; a start at or past it raises RangeNotSatisfiable."""
        ...

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """Yield what `get_range` returns, in pieces of at most ``piece_bytes``. Memory is bounded by one piece."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """Return an object's size and time without reading it. Raises ObjectNotFound."""
        ...

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield every object whose key begins with the text ``prefix``, in key order, fetched page by page."""
        ...

    def drop_cached(self, key: str) -> None:
        """Make the next read fetch the store's own bytes, not those in this host's memory. Raises ObjectNotFound."""
        ...


class ObjectWriter(Protocol):
    """Creates and deletes objects. Only `replace_if_same` overwrites one."""

    def put_if_absent(self, key: str, data: Data) -> None:
        """Create one object, whole or not at all. Raises ObjectExists when the key is taken."""
        ...

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        """Create one object from pieces of any size and return its bytes. It is invisible until it is complete.

        A piece is not used after the next one was requested. Memory is bounded by parts in flight, whatever the
        object's size. Any failure, also of the iterator, aborts the upload. Raises ObjectExists.
        """
        ...

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        """Overwrite one small object if its content is ``previous``. Only the rotation of keys (`rotate.py`) does this.

        Readers see the old object or the new one, whole. Returns False, and changes nothing, for any other content.
        Raises ObjectNotFound when the object was deleted; it is not re-created.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete one object. Idempotent: a missing object is no error."""
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects in no promised order, in batches where the store supports them. Idempotent."""
        ...


class ObjectUploads(Protocol):
    """Finds and removes the remains of large puts that never ended."""

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield uploads of any client to keys below ``prefix`` that were neither completed nor aborted.

        Running uploads are among them where the store cannot tell them apart: judge by ``started_at``. Uploads without
        a key are listed only for the empty prefix. A store that removes them by itself yields none.
        """
        ...

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Remove the uploaded parts. Idempotent. An upload that has completed in the meantime keeps its object."""
        ...


class ObjectStore(ObjectReader, ObjectWriter, ObjectUploads, Protocol):
    """A whole object store, as `open_store` returns it: for code that reads and writes, or opens and closes it."""

    @property
    def description(self) -> str:
        """The store's URL, without secrets."""
        ...

    def close(self) -> None:
        """Release all connections of the store. Idempotent."""
        ...


def beyond_end(key: str, range: ByteRange, size: int | None) -> RangeNotSatisfiable:
    return RangeNotSatisfiable("range begins past the end of the object", key=key, start=range.start, size=size)


def over_limit(key: str, size: int, limit: int) -> InvalidRequest:
    return InvalidRequest("object is larger than expected", key=key, size=size, limit=limit)
