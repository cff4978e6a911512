"""Sends one multipart upload: in parallel, with bounded memory, completed only if no object has the key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, TierstateError, Unavailable
from ..state.objects import UnfinishedUpload
from ..state.offsets import TimestampMs
from .crc32c import crc32c_text, extended
from .parts import Part, UploadShare
from .s3_body import SentBody
from .s3_errors import UploadGone
from .s3_options import write_arguments
from .s3_requests import MARKER, S3Requests

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import (
        CompletedPartTypeDef,
        ListMultipartUploadsOutputTypeDef,
        MultipartUploadTypeDef,
        UploadPartOutputTypeDef,
    )

MAX_PARTS = 10_000
"""S3's limit. Parts of 8 MiB reach 78 GiB, far more than a segment of 2 GiB."""
_CLOCK_STEP_MS = 2_000
"""Tolerance for comparing the store's times, which may have whole seconds."""


class MultipartUpload:
    """The upload of one object, which is begun here. `send` completes or aborts it."""

    def __init__(self, requests: S3Requests, key: str, full: str, share: UploadShare) -> None:
        self._requests, self._client, self._key, self._share = requests, requests.client, key, share
        self._where: dict[str, Any] = {"Bucket": requests.bucket, "Key": full}
        self._full, self._marker, self._failed = full, requests.new_marker(), False
        self._checksum_type: dict[str, Any] = requests.checksum_type
        self._upload_id = self._create()

    def send(self, parts: Iterable[Part]) -> int:
        """Upload every part, complete the object and return its size in bytes. ``parts`` takes shares, which bounds the
        parts in flight. Any failure, also of the iterator, aborts the upload. Raises ObjectExists if the key is taken.
        """
        size, concurrency = 0, self._requests.options.concurrency
        completed_parts: list[CompletedPartTypeDef] = []
        waiting: deque[Future[CompletedPartTypeDef]] = deque()
        threads = ThreadPoolExecutor(concurrency, thread_name_prefix="tierstate-part")
        with threads as pool:
            try:
                for part in parts:  # `enumerate` would keep each part until it has the next one
                    number = len(completed_parts) + len(waiting) + 1
                    size += len(part.data)
                    if number > MAX_PARTS:
                        raise InvalidRequest("the object has more parts than S3 allows", key=self._key, limit=MAX_PARTS)
                    waiting.append(pool.submit(self._part, number, [part.data]))
                    del part  # otherwise this name keeps it until the next part is made
                    while waiting and waiting[0].done():
                        completed_parts.append(waiting.popleft().result())
                completed_parts.extend(each.result() for each in waiting)
                self._complete(completed_parts)
            except BaseException:  # also an interrupt: an unfinished upload costs money
                self._failed = True
                for future in waiting:
                    future.cancel()
                for future in waiting:
                    with suppress(BaseException):
                        future.result()  # a part that arrives after the abort would keep the upload alive
                with suppress(TierstateError):  # the first error counts; the upload remains unfinished
                    abort(self._requests, self._key, self._full, self._upload_id)
                raise
        return size

    def _create(self) -> str:
        clock = self._requests.retries.clock
        began, tries = clock.monotonic(), 0

        def create() -> str:
            return self._client.create_multipart_upload(
                **self._where,
                ChecksumAlgorithm="CRC32C",
                Metadata={MARKER: self._marker},
                **cast(Any, {**self._checksum_type, **write_arguments(self._requests.options)}),
            )["UploadId"]

        def request() -> str:
            nonlocal tries
            tries += 1
            try:
                return create()
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (400, 501) or not self._checksum_type:
                    raise
                self._checksum_type = {}
                upload_id = create()
                self._requests.checksum_type = {}  # this store supports only checksums of checksums
                return upload_id

        upload_id = self._requests.write(self._key, request)
        if tries > 1:
            with suppress(TierstateError):
                self._abort_the_lost(upload_id, clock.monotonic() - began)
        return upload_id

    def _abort_the_lost(self, upload_id: str, took_s: float) -> None:
        """Abort uploads that were created here but whose id was lost with the answer. Key and time identify them.

        An upload by another writer, of the same key and in the same seconds, is aborted too. That writer starts again.
        """
        same = [upload for upload in unfinished(self._requests, self._full, self._key) if upload.key == self._key]
        ours = next((upload.started_at for upload in same if upload.upload_id == upload_id), None)
        for upload in same if ours is not None else ():
            assert ours is not None
            if upload.upload_id != upload_id and 0 <= ours - upload.started_at <= took_s * 1000 + _CLOCK_STEP_MS:
                abort(self._requests, self._key, self._full, upload.upload_id)

    def _part(self, number: int, held: list[bytearray]) -> CompletedPartTypeDef:
        """Send the part in the list ``held``. Empty the list before the share, and so its memory, is given back."""
        try:
            return self._sent(number, held[0])
        finally:
            held.clear()
            self._share.give_back()

    def _sent(self, number: int, data: bytearray) -> CompletedPartTypeDef:
        crc = crc32c_text(extended(0, data))

        def request() -> UploadPartOutputTypeDef:
            return self._client.upload_part(
                **self._where,
                UploadId=self._upload_id,
                PartNumber=number,
                Body=cast(Any, SentBody(data)),  # botocore needs only read, seek and tell; its stubs require more
                ChecksumCRC32C=crc,
            )

        answer = self._requests.write(self._key, request, given_up=lambda: self._failed, size=len(data))
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32C": crc}

    def _complete(self, done: list[CompletedPartTypeDef]) -> None:
        try:
            self._requests.write(
                self._key,
                lambda: self._client.complete_multipart_upload(
                    **self._where,
                    UploadId=self._upload_id,
                    MultipartUpload={"Parts": done},
                    IfNoneMatch="*",
                    **self._checksum_type,
                ),
            )
        except (ObjectExists, Unavailable) as error:
            # After a lost answer or a repeated request, the second request finds this upload's object or no upload.
            if self._requests.made_by(self._marker, self._key, self._full):
                return
            if isinstance(error, UploadGone) and self._key_is_taken():
                raise ObjectExists("object exists", key=self._key, store=self._requests.store) from error
            raise

    def _key_is_taken(self) -> bool:
        with suppress(TierstateError):
            self._requests.write(self._key, lambda: self._client.head_object(**self._where))
            return True
        return False


def unfinished(requests: S3Requests, prefix: str, stripped: str) -> Iterator[UnfinishedUpload]:
    """Yield unfinished uploads to keys that begin with ``prefix``, which is the store's prefix and ``stripped``."""
    above = prefix.removesuffix(stripped)

    def page_of(prefix: str, **after: str) -> ListMultipartUploadsOutputTypeDef:
        return requests.read(
            stripped,
            lambda: requests.client.list_multipart_uploads(Bucket=requests.bucket, Prefix=prefix, **cast(Any, after)),
        )

    page = page_of(prefix)
    while True:
        uploads = page.get("Uploads", [])
        yield from (_unfinished(upload, above) for upload in uploads)
        if not page.get("IsTruncated") or not (key := page.get("NextKeyMarker")):
            return
        try:
            page = page_of(prefix, KeyMarker=key, UploadIdMarker=page.get("NextUploadIdMarker", ""))
        except InvalidRequest:  # versitygw 1.8 refuses its own marker: list this key alone, then later keys
            listed_ids = {upload["UploadId"] for upload in uploads}
            same = (upload for upload in page_of(key).get("Uploads", []) if upload["Key"] == key)
            yield from (_unfinished(upload, above) for upload in same if upload["UploadId"] not in listed_ids)
            page = page_of(prefix, KeyMarker=key)


def _unfinished(upload: MultipartUploadTypeDef, above: str) -> UnfinishedUpload:
    started = TimestampMs(int(upload["Initiated"].timestamp() * 1000))
    return UnfinishedUpload(upload["Key"].removeprefix(above), upload["UploadId"], started)


def abort(requests: S3Requests, key: str, full: str, upload_id: str) -> None:
    """Abort an upload. Idempotent: no error is raised if the upload was completed or aborted before."""
    with suppress(UploadGone, ObjectNotFound):
        requests.abort(
            key,
            lambda: requests.client.abort_multipart_upload(Bucket=requests.bucket, Key=full, UploadId=upload_id),
        )
