"""The interface that tierstate needs from any object store. `contract.py` states and checks every promise.

A function takes the smallest protocol that it uses: reader, writer or uploads. Implementations of all three:
`memory.py` (for tests), `directory.py`, `s3.py`, `gcs.py`, `azure.py`. All are synchronous and thread-safe.

Implementations raise only these errors: ObjectNotFound, ObjectExists, RangeNotSatisfiable, InvalidRequest,
AccessDenied, Throttled, StorageFull, StorageUnavailable, CorruptData (the answer does not match the request).
After a write raised StorageUnavailable or Throttled, the object may exist. It is then complete, never a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..state.errors import InvalidRequest
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import ByteRange, TimestampMs

MIB = 1024 * 1024
DEFAULT_PART_BYTES = 8 * MIB

Data = bytes | bytearray | memoryview


class RangeNotSatisfiable(InvalidRequest):
    """The error for a range that begins at or past the end of its object."""


class ObjectReads(Protocol):
    """The methods that reading a segment needs. Keys are relative to the store's URL."""

    def get(self, key: str, limit: int | None = None) -> bytes:
        """Return the whole object. Raises InvalidRequest, without reading all, if it has more than ``limit`` bytes."""

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """Yield the range of bytes, in pieces of at most ``piece_bytes``. Memory is bounded by one piece.

        A stop past the object's end is clamped. Raises RangeNotSatisfiable if the range starts at or past it.
        """

    def head(self, key: str) -> ObjectInfo:
        """Return the size and modification time of an object without reading it. Raises ObjectNotFound."""


class ObjectReader(ObjectReads, Protocol):
    """Reads and lists objects."""

    def get_range(self, key: str, range: ByteRange) -> bytes:
        """Return the bytes that `stream_range` yields."""

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield every object whose key begins with the text ``prefix``, in key order, fetched page by page."""

    def drop_cached(self, key: str) -> None:
        """Make the next read fetch the store's own bytes, not those in this host's memory. Raises ObjectNotFound."""


class ObjectWriter(Protocol):
    """Creates and deletes objects. Only `replace_if_same` overwrites one."""

    def put_if_absent(self, key: str, data: Data) -> None:
        """Create one object, completely or not at all. Raises ObjectExists if an object has this key."""

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        """Create one object from pieces of any size. Return its size in bytes. It is invisible until it is complete.

        A piece is not used after the next piece was requested. Memory is bounded by the parts in flight, whatever the
        object's size. A failure of the store or of the iterator aborts the upload. Raises ObjectExists.
        """

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        """Overwrite one small object if its content is ``previous``. Only the rotation of keys (`rotate.py`) does this.

        Readers see the complete old object or the complete new one. Returns False and changes nothing if the content
        is not ``previous``. Raises ObjectNotFound if the object was deleted. A deleted object is not re-created.
        """

    def delete(self, key: str) -> None:
        """Delete one object. Idempotent: a missing object is no error."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects in any order, in batches if the store supports them. Missing objects are no error."""


class ObjectUploads(Protocol):
    """Finds and removes uploads that were neither completed nor aborted."""

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield the unfinished uploads of any client to keys that begin with the text ``prefix``.

        If the store cannot tell running uploads from abandoned ones, it yields both: judge by ``started_at``. Uploads
        without a key are listed only for the empty prefix. A store that removes unfinished uploads itself yields none.
        """

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Remove the uploaded parts. Idempotent. If the upload has completed in the meantime, its object stays."""


class ObjectStore(ObjectReader, ObjectWriter, ObjectUploads, Protocol):
    """An object store as `open_store` returns it: for code that reads and writes, or opens and closes the store."""

    @property
    def description(self) -> str:
        """The store's URL, without secrets."""

    def close(self) -> None:
        """Release all connections of the store. Idempotent."""


@dataclass(frozen=True, slots=True)
class StoreDate:
    """The time in an answer, and the monotonic time in seconds at which the answer arrived."""

    at: TimestampMs
    seen: float


@runtime_checkable
class ShowsDate(Protocol):
    """A store that is accessed by HTTP. (A folder has no clock of its own.)"""

    @property
    def date(self) -> StoreDate | None:
        """The date of the newest answer. None before the first answer."""


@runtime_checkable
class SignsReads(Protocol):
    """A store that can sign URLs. A folder cannot."""

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Return a URL to GET this object for ``seconds`` without the store's credentials.

        Its holder can read any range of the object, and it cannot be revoked. It contains bucket and key. It ends
        earlier if Amazon's temporary credentials or Azure's delegation key expire: then the store answers 403.
        Returns None if the credentials cannot sign (an emulator). Raises AccessDenied and StorageUnavailable, because
        some clouds sign by a request.
        """


def beyond_end(key: str, range: ByteRange, size: int | None) -> RangeNotSatisfiable:
    return RangeNotSatisfiable("range begins past the end of the object", key=key, start=range.start, size=size)


def over_limit(key: str, size: int, limit: int) -> InvalidRequest:
    return InvalidRequest("object is larger than expected", key=key, size=size, limit=limit)
