"""Azure Blob Storage, accessed with azure-storage-blob (the extra ``azure``).

Every write carries ``If-None-Match: *``, or ``If-Match`` for a replacement. If a body breaks off, Microsoft's client
itself requests the rest: twice at most, a second apart.
"""

from __future__ import annotations

import builtins
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock, BlobClient, StandardBlobTier

from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, StorageUnavailable, TierstateError
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange
from .answers import body_range, milliseconds
from .azure_errors import BLOCKS_GONE, translated
from .azure_options import GET_BYTES, ONE_REQUEST_BYTES, SharedAccess, azure_client
from .cloud_store import CloudStore
from .object_store import MIB, Data, RangeNotSatisfiable, beyond_end, over_limit
from .parts import Part, PartShares, UploadShare, as_bytes, parts_of, send_all

UPLOAD_ID = "tierstate_upload"
"""Name of the metadata entry that shows which upload created an object. Azure allows no dashes in it."""
_WINDOW_BYTES = 4 * MIB
"""Least bytes that one GET requests for a streamed range: Microsoft's client returns whole answers, no streams."""
_BATCH = 256
"""Azure's limit for deletes in one request."""
MAX_BLOCKS = 50_000
"""Azure's limit. Parts of 8 MiB reach 390 GiB."""
A = TypeVar("A")


class AzureStore(CloudStore):
    scheme = "az"
    one_request_bytes = ONE_REQUEST_BYTES

    def _connect(self) -> None:
        if (tier := self.options.storage_class) and tier.capitalize() not in StandardBlobTier.__members__.values():
            raise InvalidRequest("an az:// store has the classes Hot, Cool and Cold", storage_class=tier)
        try:
            self._container, self._credential = azure_client(self.bucket, self.options, self.description)
        except (AzureError, ValueError):
            # Without the client's error, which may repeat the connection string and the key in it.
            raise InvalidRequest("the Azure client cannot be built", store=self.description) from None
        self._signatures = SharedAccess(self._container, self._credential, self.clock)

    def put_if_absent(self, key: str, data: Data) -> None:
        blob, body = self._blob(key), bytes(data)
        if len(body) > ONE_REQUEST_BYTES:
            self.put_stream(key, [body])
            return
        signed = {UPLOAD_ID: self.new_mark()}
        try:
            self.repeated_write(
                key,
                lambda: blob.upload_blob(
                    body, length=len(body), overwrite=False, metadata=signed, standard_blob_tier=self._tier(key)
                ),
                size=len(body),
            )
        except (ObjectExists, StorageUnavailable) as error:
            if not self._landed(blob, key, signed, error):
                # Blocks of an unfinished upload make this request fail (azurite), but not a commit.
                with PartShares(1).upload() as share:  # not of `_shares`: the caller may hold one of these
                    self._upload(key, parts_of([body], len(body) or 1, share), share)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        blob, signed = self._blob(key), {UPLOAD_ID: self.new_mark()}
        etag = self.repeated_read(key, blob.get_blob_properties).etag  # before the read: later changes are refused
        if self.get(key) != previous:
            return False
        condition: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        try:
            self.repeated_write(
                key, lambda: blob.upload_blob(bytes(data), overwrite=True, metadata=signed, **condition)
            )
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

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """Yield the range in pieces. Memory is bounded by one GET: 4 MiB, or a larger piece of at most 32 MiB."""
        self.full(key)
        window = min(max(piece_bytes, _WINDOW_BYTES), GET_BYTES)
        position, stop = range.start, range.stop
        while position < stop:
            data, size = self._download(key, ByteRange(position, min(stop, position + window)))
            position, stop = position + len(data), min(stop, size)
            for start in builtins.range(0, len(data), piece_bytes):
                yield data[start : start + piece_bytes]

    def head(self, key: str) -> ObjectInfo:
        properties = self.repeated_read(key, self._blob(key).get_blob_properties)
        return ObjectInfo(key, properties.size, milliseconds(properties.last_modified))

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(itertools.islice(remaining, _BATCH)):
            answers = self.repeated_write("", partial(self._batch_delete, [self.full(key) for key in batch]))
            for key, answer in itertools.zip_longest(batch, answers):
                missing = answer is not None and answer.headers.get("x-ms-error-code") == "BlobNotFound"
                if answer is None or not (answer.status_code == 202 or missing):
                    self.delete(key)  # with the retries and errors of a single delete

    def signed_url(self, key: str, seconds: float) -> str:
        """Sign with the account's key, or without it with a cached delegation key (`generateUserDelegationKey`)."""
        blob = self._blob(key)
        return self.once(key, lambda: f"{blob.url}?{self._signatures.of(self.full(key), seconds)}")

    def close(self) -> None:
        self._container.close()
        if self._credential is not None:
            self._credential.close()

    def _delete(self, full: str) -> object:
        blob = self._container.get_blob_client(full)
        return blob.delete_blob(delete_snapshots="include")

    def _tier(self, key: str) -> StandardBlobTier | None:
        tier = self.class_of(key)
        return None if tier is None else StandardBlobTier(tier.capitalize())

    def _blob(self, key: str) -> BlobClient:
        return self._container.get_blob_client(self.full(key))

    def _page(self, prefix: str, after: str | None, token: str | None) -> tuple[Sequence[ObjectInfo], str | None]:
        """Return a page that begins with the first key: Azure cannot start after one."""
        pages: Any = self._container.list_blobs(self._prefix + prefix or None, include=["metadata"]).by_page(token)
        infos = [
            ObjectInfo(blob.name.removeprefix(self._prefix), blob.size, milliseconds(blob.last_modified))
            for blob in next(pages, ())
            # without the folders of an account with a hierarchical namespace
            if (blob.metadata or {}).get("hdi_isfolder") != "true"
        ]
        return infos, pages.continuation_token

    def _batch_delete(self, names: builtins.list[str]) -> builtins.list[Any]:
        return [*self._container.delete_blobs(*names, delete_snapshots="include", raise_on_any_failure=False)]

    def _upload(self, key: str, parts: Iterable[Part], share: UploadShare) -> int:
        """Stage the parts as blocks, then commit them.

        All writers of a key share its uncommitted blocks. A block id begins with the mark of its upload, so uploads
        never mix. Uncommitted blocks are not removed here, because that would create an object for a moment.
        """
        blob, mark, failed = self._blob(key), self.new_mark(), threading.Event()

        def stage(number: int, part: Part) -> BlobBlock:
            if number >= MAX_BLOCKS:
                raise InvalidRequest("the object has more parts than Azure allows", limit=MAX_BLOCKS)
            block_id, block = f"{mark}{number:06d}", bytes(part.data)
            request = partial(blob.stage_block, block_id, block, length=len(block))
            self.repeated_write(key, request, failed.is_set, len(block))
            return BlobBlock(block_id)

        blocks, size = send_all(map(as_bytes, parts), stage, share, failed, self.options.concurrency)
        signed = {UPLOAD_ID: mark}
        condition: dict[str, Any] = {
            "match_condition": MatchConditions.IfMissing,
            "standard_blob_tier": self._tier(key),
        }
        try:
            # The commit point: before it there is no object, after it the complete object.
            self.repeated_write(key, lambda: blob.commit_block_list(blocks, metadata=signed, **condition))
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
            properties = self.repeated_write(key, blob.get_blob_properties)
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
            data = self.repeated_read(key, read)
        except ValueError:  # raised by Microsoft's client for an answer without a range
            content_ranges, data = [None], b""
        except RangeNotSatisfiable as error:
            raise beyond_end(key, range, None) from error
        content_range = content_ranges[-1] if content_ranges else None
        _, size = body_range(content_range, range, key, self.description, len(data))
        if range.start >= size:
            raise beyond_end(key, range, size)  # azurite answers with no bytes
        return data, size

    def once(self, key: str, request: Callable[[], A]) -> A:
        try:
            return request()
        except AzureError as error:
            raise translated(error, key, self.description) from error
