"""Azure Blob Storage, accessed with azure-storage-blob (the extra ``azure``).

Every write carries ``If-None-Match: *``, or ``If-Match`` for a replacement, and its own id in the object's metadata.
After a lost answer, the id of the existing object shows whether this write created it. Microsoft's client sends each
request once, and `retry_policy.py` repeats it, as for every store. (Only if a body breaks off, the client itself
requests the rest: twice at most, a second apart.)
"""

from __future__ import annotations

import builtins
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobClient, BlobProperties

from ..runtime.clock import Clock, SystemClock
from ..runtime.id_source import IdSource, RandomIds
from ..runtime.listener import Listener, ignore
from ..state.errors import (
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    TierstateError,
)
from ..state.objects import ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange, TimestampMs
from .azure_access import SharedAccess
from .azure_errors import BLOCKS_GONE, translated
from .azure_options import GET_BYTES, ONE_REQUEST_BYTES, azure_client
from .azure_upload import BlockUpload
from .object_store import DEFAULT_PART_BYTES, MIB, Data, RangeNotSatisfiable, beyond_end, over_limit
from .options import StoreOptions
from .parts import Part, PartShares, UploadShare, drained, parts_of
from .retry_policy import RetryPolicy, never

UPLOAD_ID = "tierstate_upload"
"""Name of the metadata entry that shows which upload created an object. Azure allows no dashes in it."""
_WINDOW_BYTES = 4 * MIB
"""Least bytes that one GET requests for a streamed range: Microsoft's client returns whole answers, no streams."""
_BATCH = 256
"""Azure's limit for deletes in one request."""
A = TypeVar("A")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class AzureStore:
    """The objects of one container below one prefix. The store puts a ``/`` between the prefix (``a/b``) and a key."""

    def __init__(
        self,
        container: str,
        prefix: str = "",
        options: StoreOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        listener: Listener = ignore,
        connection_string: str | None = None,
    ) -> None:
        if not container:
            raise InvalidRequest("an Azure store has a container", example="az://container/prefix")
        self._name = container
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._options, self._ids = options or StoreOptions(), ids or RandomIds()
        self._shares = PartShares(self._options.concurrency)
        self._retries = RetryPolicy(self._options.limits, clock or SystemClock(), self._ids, listener, self.description)
        try:
            self._container, self._credential = azure_client(
                container, self._options, connection_string, self.description
            )
        except (AzureError, ValueError):
            # Without the client's error, which may repeat the connection string and the key in it.
            raise InvalidRequest("the Azure client cannot be built", store=self.description) from None
        self._signatures = SharedAccess(self._container, self._credential, clock or SystemClock())

    @property
    def description(self) -> str:
        return f"az://{self._name}/{self._prefix}".rstrip("/")

    def put_if_absent(self, key: str, data: Data) -> None:
        blob, body = self._blob(key), bytes(data)
        if len(body) > ONE_REQUEST_BYTES:
            self.put_stream(key, [body])
            return
        signed = {UPLOAD_ID: self._ids.uuid().hex()}
        try:
            self._write(
                key,
                lambda: blob.upload_blob(body, length=len(body), overwrite=False, metadata=signed),
                size=len(body),
            )
        except (ObjectExists, StorageUnavailable) as error:
            if not self._landed(blob, key, signed, error):
                # Blocks of an unfinished upload make this request fail (azurite), but not a commit.
                with PartShares(1).upload() as share:  # not of `_shares`: the caller may hold one of these
                    self._commit(blob, key, parts_of([body], len(body) or 1, share), share)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        blob = self._blob(key)
        size = self._options.part_bytes if part_bytes == DEFAULT_PART_BYTES else part_bytes
        with self._shares.upload() as share:
            parts = parts_of(pieces, size, share)
            begin = [next(parts)]
            if begin[0].last and len(begin[0].data) <= ONE_REQUEST_BYTES:
                self.put_if_absent(key, begin[0].data)
                return len(begin[0].data)
            return self._commit(blob, key, drained(begin, parts), share)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        blob, signed = self._blob(key), {UPLOAD_ID: self._ids.uuid().hex()}
        etag = self._read(key, blob.get_blob_properties).etag  # before the read: later changes are refused
        if self.get(key) != previous:
            return False
        condition: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        try:
            self._write(key, lambda: blob.upload_blob(bytes(data), overwrite=True, metadata=signed, **condition))
        except (ObjectExists, StorageUnavailable) as error:
            try:
                return self._landed(blob, key, signed, error)
            except ObjectExists:  # Azure's error for an outdated ETag
                return False
        return True

    def get(self, key: str, limit: int | None = None) -> bytes:
        first = GET_BYTES if limit is None else min(GET_BYTES, limit + 1)
        try:
            data, size = self._download(key, ByteRange(0, first))
        except RangeNotSatisfiable:
            return b""  # only an empty object has no byte 0
        if limit is not None and size > limit:
            raise over_limit(key, size, limit)
        return data if len(data) == size else data + self.get_range(key, ByteRange(len(data), size))

    def get_range(self, key: str, range: ByteRange) -> bytes:
        pieces = list(self.stream_range(key, range, max(1, len(range))))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """Yield the range in pieces. Memory is bounded by one GET: 4 MiB, or a larger piece of at most 32 MiB."""
        self._full(key)
        window = min(max(piece_bytes, _WINDOW_BYTES), GET_BYTES)
        position, stop = range.start, range.stop
        while position < stop:
            data, size = self._download(key, ByteRange(position, min(stop, position + window)))
            position, stop = position + len(data), min(stop, size)
            if len(data) <= piece_bytes:
                yield data
                continue
            for start in itertools.count(0, piece_bytes):
                if start >= len(data):
                    break
                yield data[start : start + piece_bytes]

    def head(self, key: str) -> ObjectInfo:
        properties = self._read(key, self._blob(key).get_blob_properties)
        return ObjectInfo(key, properties.size, _milliseconds(properties.last_modified))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects. Azure cannot start after a key: keys up to ``start_after`` are fetched and skipped."""
        token: str | None = None
        while True:
            page, token = self._read("", partial(self._page, self._prefix + prefix, token))
            for blob in page:
                if (blob.metadata or {}).get("hdi_isfolder") == "true":
                    continue  # a folder in an account with a hierarchical namespace
                key = blob.name.removeprefix(self._prefix)
                if start_after is None or key > start_after:
                    yield ObjectInfo(key, blob.size, _milliseconds(blob.last_modified))
            if not token:
                return

    def drop_cached(self, key: str) -> None:
        """Do nothing: this host caches no objects of the store."""

    def delete(self, key: str) -> None:
        blob = self._blob(key)
        with suppress(ObjectNotFound):
            self._write(key, lambda: blob.delete_blob(delete_snapshots="include"))

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(itertools.islice(remaining, _BATCH)):
            answers = self._write("", partial(self._batch_delete, [self._full(key) for key in batch]))
            for key, answer in itertools.zip_longest(batch, answers):
                missing = answer is not None and answer.headers.get("x-ms-error-code") == "BlobNotFound"
                if answer is None or not (answer.status_code == 202 or missing):
                    self.delete(key)  # with the retries and errors of a single delete

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield nothing: uncommitted blocks are invisible, and Azure removes them a week after the last one."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Do nothing: `unfinished_uploads` yields none."""

    def signed_url(self, key: str, seconds: float) -> str:
        """Sign with the account's key, or without it with a cached delegation key (`generateUserDelegationKey`)."""
        blob = self._blob(key)
        return self._typed(key, lambda: f"{blob.url}?{self._signatures.of(self._full(key), seconds)}")

    def close(self) -> None:
        self._container.close()
        if self._credential is not None:
            self._credential.close()

    def _full(self, key: str) -> str:
        return checked_key(self._prefix + checked_key(key))

    def _blob(self, key: str) -> BlobClient:
        return self._container.get_blob_client(self._full(key))

    def _page(self, prefix: str, token: str | None) -> tuple[builtins.list[BlobProperties], str | None]:
        pages: Any = self._container.list_blobs(prefix or None, include=["metadata"]).by_page(token)
        return [*next(pages, ())], pages.continuation_token

    def _batch_delete(self, names: builtins.list[str]) -> builtins.list[Any]:
        return [*self._container.delete_blobs(*names, delete_snapshots="include", raise_on_any_failure=False)]

    def _commit(self, blob: BlobClient, key: str, parts: Iterable[Part], share: UploadShare) -> int:
        upload_id = self._ids.uuid().hex()
        upload = BlockUpload(blob, upload_id, self._options.concurrency, share, partial(self._write, key))
        signed = {UPLOAD_ID: upload_id}
        blocks, size = upload.stage(parts)
        condition: dict[str, Any] = {"match_condition": MatchConditions.IfMissing}
        try:
            # The commit point: before it there is no object, after it the complete object.
            self._write(key, lambda: blob.commit_block_list(blocks, metadata=signed, **condition))
        except (ObjectExists, StorageUnavailable) as error:
            if not self._landed(blob, key, signed, error):
                raise StorageUnavailable(
                    "the store refuses an object that it does not have", key=key, store=self.description
                ) from error
        return size

    def _landed(self, blob: BlobClient, key: str, signed: dict[str, str], error: TierstateError) -> bool:
        """Return True if the object has the id of this write: the request succeeded and only its answer was lost.

        Returns False if the store reported an existing object but has none. Otherwise raises ``error``, or ObjectExists
        if another writer's object removed the blocks of this upload.
        """
        try:
            properties = self._write(key, blob.get_blob_properties)
        except ObjectNotFound:
            if isinstance(error, ObjectExists):
                return False
            raise error from None
        except TierstateError:
            raise error from None
        if (properties.metadata or {}).get(UPLOAD_ID) == signed[UPLOAD_ID]:
            return True
        if error.facts.get("code") in BLOCKS_GONE:
            raise ObjectExists("another writer has this key", key=key, store=self.description) from error
        raise error

    def _download(self, key: str, range: ByteRange) -> tuple[bytes, int]:
        """Return the bytes of one GET and the object's size. Raises CorruptData if the answer has another range."""
        content_ranges: list[str | None] = []

        def look(answer: Any) -> None:
            if answer.http_response.status_code < 300:
                content_ranges.append(answer.http_response.headers.get("Content-Range"))

        blob = self._blob(key)

        def read() -> bytes:
            return blob.download_blob(range.start, len(range), max_concurrency=1, raw_response_hook=look).readall()

        try:
            data = self._read(key, read)
        except ValueError as error:  # raised by Microsoft's client for an answer without a range
            raise self._other_range(key, range, None) from error
        except RangeNotSatisfiable as error:
            raise beyond_end(key, range, None) from error
        match = _CONTENT_RANGE.fullmatch(content_ranges[-1] or "") if content_ranges else None
        expected = (range.start, min(range.stop, int(match[3])) - 1) if match else None
        if not match or (int(match[1]), int(match[2])) != expected or len(data) != expected[1] + 1 - range.start:
            raise self._other_range(key, range, content_ranges[-1] if content_ranges else None)
        if range.start >= int(match[3]):
            raise beyond_end(key, range, int(match[3]))  # azurite answers with no bytes
        return data, int(match[3])

    def _other_range(self, key: str, range: ByteRange, answered: str | None) -> CorruptData:
        return CorruptData(
            "the store answers another range than asked",
            key=key,
            store=self.description,
            asked=f"{range.start}-{range.stop - 1}",
            answered=answered or "the whole object",
        )

    def _write(self, key: str, act: Callable[[], A], given_up: Callable[[], bool] = never, size: int = 0) -> A:
        """Return the result of ``act``. Repeat it by the retry policy of writes, and translate its errors."""
        return self._retries.write(key, lambda: self._typed(key, act), given_up, size)

    def _read(self, key: str, act: Callable[[], A]) -> A:
        """Do the same as `_write`, with the retry policy of reads."""
        return self._retries.read(key, lambda: self._typed(key, act))

    def _typed(self, key: str, act: Callable[[], A]) -> A:
        try:
            return act()
        except AzureError as error:
            raise translated(error, key, self.description) from error


def _milliseconds(moment: Any) -> TimestampMs:
    return TimestampMs(int(moment.timestamp() * 1000))
