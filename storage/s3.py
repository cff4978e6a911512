"""S3 and compatible stores, accessed with boto3. Credentials come from boto3's own chain unless they are configured.

Every write carries ``If-None-Match: *``, or ``If-Match`` for a replacement; `tierstate certify` checks that the store
obeys.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..state.errors import (
    AccessDenied,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import ByteRange
from .answers import body_range, milliseconds
from .crc32c import crc32c_from, crc32c_text, extended
from .object_store import MIB, Data, ObjectStore, RangeNotSatisfiable, beyond_end, over_limit
from .options import MIN_PART_BYTES
from .parts import Part, UploadShare
from .s3_body import SentBody, arriving
from .s3_errors import answered
from .s3_requests import MARKER, S3Requests
from .s3_upload import MultipartUpload, abort, unfinished

if TYPE_CHECKING:
    from botocore.response import StreamingBody

_BATCH = 1000


class S3Store(S3Requests):
    scheme = "s3"
    one_request_bytes = sys.maxsize  # a single part of any size

    def put_if_absent(self, key: str, data: Data) -> None:
        self._put(key, data, {"IfNoneMatch": "*"})

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self._whole(key, limit)[0]

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        body, stop, etag = self._retries.read(key, lambda: self._open_range(key, range))
        yield from self._continued(key, body, ByteRange(range.start, stop), etag, piece_bytes)

    def head(self, key: str) -> ObjectInfo:
        look = partial(self.client.head_object, Bucket=self.bucket, Key=self.full(key), ChecksumMode="ENABLED")
        try:
            answer = self.repeated_read(key, look)
        except ObjectNotFound:
            if self._is_missing(key):
                raise
            answer = self.repeated_read(key, look)
        # a checksum of another type covers the parts' checksums, or is unknown
        checksum = answer.get("ChecksumCRC32C") if answer.get("ChecksumType") == "FULL_OBJECT" else None
        return ObjectInfo(key, answer["ContentLength"], milliseconds(answer["LastModified"]), crc32c_from(checksum))

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(itertools.islice(remaining, _BATCH)):
            objects = tuple({"Key": self.full(key)} for key in batch)
            self._retries.write("", partial(self._delete_batch, objects))

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        content, etag = self._whole(key)
        if content != previous:
            return False
        try:
            self._put(key, data, {"IfMatch": etag})
        except ObjectExists:  # S3's error for a condition that does not hold
            return False
        return True

    def reaches(self, source: ObjectStore) -> bool:
        return isinstance(source, S3Store) and source.options.endpoint == self.options.endpoint

    def copy_from(self, source: ObjectStore, key: str) -> bool:
        """Copy an object of a store that this one reaches, by one request. `mirror.CopiesObjects` has the promises."""
        if not isinstance(source, S3Store) or not self.reaches(source):
            return False
        full, mark, there = self.full(key), self.new_mark(), source.full(key)

        def request() -> None:
            self.client.copy_object(
                Bucket=self.bucket,
                Key=full,
                CopySource={"Bucket": source.bucket, "Key": there},
                ChecksumAlgorithm="CRC32C",
                MetadataDirective="REPLACE",
                Metadata={MARKER: mark},
                IfNoneMatch="*",
                **cast(Any, self.write_arguments(key)),
            )

        try:
            self.repeated_write(key, request)
        except (AccessDenied, InvalidRequest):  # InvalidRequest: more than the 5 GiB of one request
            return False
        except ObjectExists:
            if not self.made_by(mark, key):
                raise
        return True

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return unfinished(self, self._prefix, prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        abort(self, upload.key, upload.upload_id)

    def signed_url(self, key: str, seconds: float) -> str:
        parameters = {"Bucket": self.bucket, "Key": self.full(key)}
        sign = partial(self.client.generate_presigned_url, "get_object", Params=parameters, ExpiresIn=int(seconds))
        return str(self.once(key, sign))

    def close(self) -> None:
        self.client.close()

    def _part_size(self, size: int) -> int:
        return max(size, MIN_PART_BYTES)

    def _upload(self, key: str, parts: Iterable[Part], share: UploadShare) -> int:
        return MultipartUpload(self, key, share).send(parts)

    def _put(self, key: str, data: Data, condition: dict[str, str]) -> None:
        full, mark, checksum = self.full(key), self.new_mark(), crc32c_text(extended(0, data))

        def request() -> None:
            self.client.put_object(
                Bucket=self.bucket,
                Key=full,
                Body=cast(Any, SentBody(data)),
                ChecksumCRC32C=checksum,
                Metadata={MARKER: mark},
                **cast(Any, {**condition, **self.write_arguments(key)}),
            )

        try:
            self.repeated_write(key, request, size=memoryview(data).nbytes)
        except ObjectExists:
            if not self.made_by(mark, key):
                raise

    def _whole(self, key: str, limit: int | None = None) -> tuple[bytes, str]:
        """Return the object and its ETag."""
        full = self.full(key)
        answer = self.repeated_read(key, lambda: self.client.get_object(Bucket=self.bucket, Key=full))
        body, size, etag = answer["Body"], answer["ContentLength"], answer["ETag"]
        if limit is not None and size > limit:
            body.close()
            raise over_limit(key, size, limit)
        return b"".join(self._continued(key, body, ByteRange(0, size), etag)) if size else b"", etag

    def _open_range(self, key: str, range: ByteRange, etag: str | None = None) -> tuple[StreamingBody, int, str]:
        """Return (body, its stop position in the object, ETag). With ``etag``, the object must still have that ETag."""
        where: Any = {"Bucket": self.bucket, "Key": self.full(key), "Range": f"bytes={range.start}-{range.stop - 1}"}
        if etag is not None:
            where["IfMatch"] = etag
        try:
            answer = self.once(key, lambda: self.client.get_object(**where))
        except RangeNotSatisfiable as error:
            raise beyond_end(key, range, None) from error
        try:
            stop, _ = body_range(answer.get("ContentRange"), range, key, self.description)
        except TierstateError:
            answer["Body"].close()
            raise
        return answer["Body"], stop, answer["ETag"]

    def _continued(
        self, key: str, body: StreamingBody, range: ByteRange, etag: str, piece_bytes: int = MIB
    ) -> Iterator[bytes]:
        """Yield the bytes of a range whose first body is open. If a body breaks off, request the rest of the range."""
        attempts = self._retries.reading(key)
        position, failed_at = range.start, range.start
        while True:
            for piece in arriving(body, range.stop - position, piece_bytes, self.clock, self.options.request_timeout):
                position += len(piece)
                yield piece
            if position >= range.stop:
                return
            if position - failed_at >= MIB:
                attempts.progressed()
            failed_at = position
            failure: StorageUnavailable | Throttled = self.broken_body(key, position)
            while True:
                attempts.failed(failure)
                try:
                    body, _, _ = self._open_range(key, ByteRange(position, range.stop), etag)
                    break
                except ObjectExists as error:  # S3's error for a condition that does not hold
                    raise StorageUnavailable(
                        "the object was replaced while it was read", key=key, store=self.description
                    ) from error
                except (StorageUnavailable, Throttled) as error:
                    failure = error

    def _is_missing(self, key: str) -> bool:
        """Return whether the object is missing, by a GET. A HEAD does not suffice: its 404 has no body, so it may also
        mean a missing bucket or, in some stores, an unknown access key. The GET raises the errors for these causes.
        """
        try:
            body, _, _ = self._retries.read(key, lambda: self._open_range(key, ByteRange(0, 1)))
        except (ObjectNotFound, RangeNotSatisfiable):
            return True
        body.close()
        return False

    def _page(self, prefix: str, after: str | None, token: str | None) -> tuple[Sequence[ObjectInfo], str | None]:
        place: Any = {"Bucket": self.bucket, "Prefix": self._prefix + prefix}
        if token is not None:
            place["ContinuationToken"] = token
        elif after is not None:
            place["StartAfter"] = self._prefix + after
        page = self.client.list_objects_v2(**place)
        infos = [
            ObjectInfo(entry["Key"].removeprefix(self._prefix), entry["Size"], milliseconds(entry["LastModified"]))
            for entry in page.get("Contents", ())
        ]
        return infos, page.get("NextContinuationToken") if page.get("IsTruncated") else None

    def _delete(self, full: str) -> object:
        return self.client.delete_object(Bucket=self.bucket, Key=full)

    def _delete_batch(self, whole: Sequence[dict[str, str]]) -> None:
        delete: Any = {"Objects": whole, "Quiet": True}
        request = partial(self.client.delete_objects, Bucket=self.bucket, Delete=delete)
        for failure in self.once("", request).get("Errors", ()):
            code, key = failure.get("Code", ""), failure.get("Key", "").removeprefix(self._prefix)
            if code != "NoSuchKey":
                raise answered(code, 0, failure.get("Message", ""), key, self.description)
