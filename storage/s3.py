"""S3 and compatible stores, accessed with boto3. Credentials come from boto3's own chain unless they are configured.

Every write carries ``If-None-Match: *``, or ``If-Match`` for a replacement; `tierstate certify` checks that the store
obeys. Every write marks its object with a new id, which shows after a lost answer whether this write created it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..runtime.clock import Clock, SystemClock
from ..runtime.id_source import IdSource, RandomIds
from ..runtime.listener import Listener, ignore
from ..state.errors import (
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
)
from ..state.objects import ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange, TimestampMs
from .crc32c import crc32c_from, crc32c_text, extended
from .object_store import DEFAULT_PART_BYTES, MIB, Data, over_limit
from .options import StoreOptions
from .parts import drained, parts_of
from .s3_body import SentBody, arriving
from .s3_errors import answered
from .s3_options import part_size, write_arguments
from .s3_requests import MARKER, S3Requests
from .s3_upload import MultipartUpload, abort, unfinished
from .store_date import StoreDate

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.type_defs import (
        DeleteObjectsOutputTypeDef,
        GetObjectOutputTypeDef,
        HeadObjectOutputTypeDef,
        ListObjectsV2OutputTypeDef,
    )

_BATCH = 1000


class S3Store:
    """The objects of one bucket below one prefix. The store puts a ``/`` between the prefix (``a/b``) and a key."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        options: StoreOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        listener: Listener = ignore,
    ) -> None:
        if not bucket:
            raise InvalidRequest("an S3 store has a bucket", example="s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._options = options or StoreOptions()
        self._clock = clock or SystemClock()
        self._requests = S3Requests(bucket, self.description, self._options, self._clock, ids or RandomIds(), listener)
        self._client = self._requests.client

    @property
    def description(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def date(self) -> StoreDate | None:
        return self._requests.dates.newest

    def put_if_absent(self, key: str, data: Data) -> None:
        full, marker, checksum = self._full(key), self._requests.new_marker(), crc32c_text(extended(0, data))
        try:
            self._requests.write(
                key, lambda: self._put(full, data, checksum, marker, IfNoneMatch="*"), size=memoryview(data).nbytes
            )
        except ObjectExists:
            if not self._requests.made_by(marker, key, full):
                raise

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        full = self._full(key)
        size = part_size(self._options, part_bytes)
        with self._requests.shares.upload() as share:
            parts = parts_of(pieces, size, share)
            first = next(parts)
            if first.last:
                self.put_if_absent(key, first.data)
                return len(first.data)
            begin = [first]
            del first  # the upload owns it
            return MultipartUpload(self._requests, key, full, share).send(drained(begin, parts))

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self._whole(key, self._full(key), limit)[0]

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return b"".join(self.stream_range(key, range))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        full = self._full(key)
        body, stop, etag = self._requests.retries.read(key, lambda: self._requests.open_range(key, full, range, None))
        yield from self._continued(key, full, body, ByteRange(range.start, stop), etag, piece_bytes)

    def head(self, key: str) -> ObjectInfo:
        full = self._full(key)

        def look() -> HeadObjectOutputTypeDef:
            return self._client.head_object(Bucket=self._bucket, Key=full, ChecksumMode="ENABLED")

        try:
            answer = self._requests.read(key, look)
        except ObjectNotFound:
            if self._requests.is_missing(key, full):
                raise
            answer = self._requests.read(key, look)
        modified_at = TimestampMs(int(answer["LastModified"].timestamp() * 1000))
        # a checksum of another type covers the parts' checksums, or is unknown
        checksum = answer.get("ChecksumCRC32C") if answer.get("ChecksumType") == "FULL_OBJECT" else None
        return ObjectInfo(key, answer["ContentLength"], modified_at, crc32c_from(checksum))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        after: dict[str, Any] = {"StartAfter": self._prefix + start_after} if start_after is not None else {}

        def request() -> ListObjectsV2OutputTypeDef:
            return self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, **after)

        while True:
            page = self._requests.read("", request)
            for entry in page.get("Contents", ()):
                key = entry["Key"].removeprefix(self._prefix)
                yield ObjectInfo(key, entry["Size"], TimestampMs(int(entry["LastModified"].timestamp() * 1000)))
            if not page.get("IsTruncated"):
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}

    def drop_cached(self, key: str) -> None:
        """Do nothing: this host caches no objects of the store."""

    def delete(self, key: str) -> None:
        full = self._full(key)
        with suppress(ObjectNotFound):
            self._requests.write(key, lambda: self._client.delete_object(Bucket=self._bucket, Key=full))

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(itertools.islice(remaining, _BATCH)):
            objects = tuple({"Key": self._full(key)} for key in batch)
            self._requests.write("", partial(self._delete_batch, objects))

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        full, marker, checksum = self._full(key), self._requests.new_marker(), crc32c_text(extended(0, data))
        content, etag = self._whole(key, full)
        if content != previous:
            return False
        try:
            self._requests.write(key, lambda: self._put(full, data, checksum, marker, IfMatch=etag))
        except ObjectExists:  # S3's error for a condition that does not hold
            return self._requests.made_by(marker, key, full)
        return True

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return unfinished(self._requests, self._prefix + prefix, prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        abort(self._requests, upload.key, self._full(upload.key), upload.upload_id)

    def signed_url(self, key: str, seconds: float) -> str:
        parameters = {"Bucket": self._bucket, "Key": self._full(key)}

        def sign() -> str:
            return str(self._client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=int(seconds)))

        return self._requests.once(key, sign)

    def close(self) -> None:
        self._client.close()

    def _full(self, key: str) -> str:
        return checked_key(self._prefix + checked_key(key))

    def _put(self, full: str, data: Data, checksum: str, marker: str, **condition: str) -> None:
        self._client.put_object(
            Bucket=self._bucket,
            Key=full,
            Body=cast(Any, SentBody(data)),
            ChecksumCRC32C=checksum,
            Metadata={MARKER: marker},
            **cast(Any, {**condition, **write_arguments(self._options)}),
        )

    def _whole(self, key: str, full: str, limit: int | None = None) -> tuple[bytes, str]:
        """Return the object and its ETag."""

        def request() -> GetObjectOutputTypeDef:
            return self._client.get_object(Bucket=self._bucket, Key=full)

        answer = self._requests.read(key, request)
        body, size, etag = answer["Body"], answer["ContentLength"], answer["ETag"]
        if limit is not None and size > limit:
            body.close()
            raise over_limit(key, size, limit)
        return b"".join(self._continued(key, full, body, ByteRange(0, size), etag)) if size else b"", etag

    def _continued(
        self, key: str, full: str, body: StreamingBody, range: ByteRange, etag: str, piece_bytes: int = MIB
    ) -> Iterator[bytes]:
        """Yield the bytes of a range whose first body is open. If a body breaks off, request the rest of the range."""
        attempts = self._requests.retries.reading(key)
        position, failed_at = range.start, range.start
        while True:
            for piece in arriving(body, range.stop - position, piece_bytes, self._clock, self._options.request_timeout):
                position += len(piece)
                yield piece
            if position >= range.stop:
                return
            if position - failed_at >= MIB:
                attempts.progressed()
            failed_at = position
            failure: StorageUnavailable | Throttled = StorageUnavailable(
                "the body breaks off", key=key, store=self.description, position=position
            )
            while True:
                attempts.failed(failure)
                try:
                    rest = ByteRange(position, range.stop)
                    body, _, _ = self._requests.open_range(key, full, rest, etag)
                    break
                except ObjectExists as error:  # S3's error for a condition that does not hold
                    raise StorageUnavailable(
                        "the object was replaced while it was read", key=key, store=self.description
                    ) from error
                except (StorageUnavailable, Throttled) as error:
                    failure = error

    def _delete_batch(self, whole: Sequence[dict[str, str]]) -> None:
        def request() -> DeleteObjectsOutputTypeDef:
            return self._client.delete_objects(Bucket=self._bucket, Delete=cast(Any, {"Objects": whole, "Quiet": True}))

        for failure in self._requests.once("", request).get("Errors", ()):
            code, key = failure.get("Code", ""), failure.get("Key", "").removeprefix(self._prefix)
            if code != "NoSuchKey":
                raise answered(code, 0, failure.get("Message", ""), key, self.description)
