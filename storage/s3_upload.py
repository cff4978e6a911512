"""Sends one multipart upload: in parallel, with bounded memory, completed only if no object has the key."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from ..state.errors import InvalidRequest, ObjectExists, ObjectNotFound, TierstateError, Unavailable
from ..state.objects import UnfinishedUpload
from .answers import milliseconds
from .crc32c import crc32c_text, extended
from .parts import Part, UploadShare, send_all
from .s3_body import SentBody
from .s3_errors import UploadGone
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

    def __init__(self, store: S3Requests, key: str, share: UploadShare) -> None:
        self._store, self._client, self._key, self._share = store, store.client, key, share
        self._where: dict[str, Any] = {"Bucket": store.bucket, "Key": store.full(key)}
        self._mark, self._failed = store.new_mark(), threading.Event()
        self._checksum_type: dict[str, Any] = store.checksum_type
        self._upload_id = self._create()

    def send(self, parts: Iterable[Part]) -> int:
        """Upload every part, complete the object and return its size in bytes. ``parts`` takes shares, which bounds the
        parts in flight. Any failure, also of the iterator, aborts the upload. Raises ObjectExists if the key is taken.
        """
        try:
            done, size = send_all(parts, self._part, self._share, self._failed, self._store.options.concurrency)
            self._complete(done)
        except BaseException:  # also an interrupt: an unfinished upload costs money
            with suppress(TierstateError):  # the first error counts; the upload remains unfinished
                abort(self._store, self._key, self._upload_id)
            raise
        return size

    def _create(self) -> str:
        began, tries = self._store.clock.monotonic(), 0

        def create() -> str:
            return self._client.create_multipart_upload(
                **self._where,
                ChecksumAlgorithm="CRC32C",
                Metadata={MARKER: self._mark},
                **cast(Any, {**self._checksum_type, **self._store.write_arguments(self._key)}),
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
                self._store.checksum_type = {}  # this store supports only checksums of checksums
                return upload_id

        upload_id = self._store.repeated_write(self._key, request)
        if tries > 1:
            with suppress(TierstateError):
                self._abort_the_lost(upload_id, self._store.clock.monotonic() - began)
        return upload_id

    def _abort_the_lost(self, upload_id: str, took_s: float) -> None:
        """Abort uploads that were created here but whose id was lost with the answer. Key and time identify them.

        An upload by another writer, of the same key and in the same seconds, is aborted too. That writer starts again.
        """
        begun = {
            upload.upload_id: upload.started_at
            for upload in self._store.unfinished_uploads(self._key)
            if upload.key == self._key
        }
        ours = begun.pop(upload_id, None)
        for other, started_at in begun.items():
            if ours is not None and 0 <= ours - started_at <= took_s * 1000 + _CLOCK_STEP_MS:
                abort(self._store, self._key, other)

    def _part(self, number: int, part: Part) -> CompletedPartTypeDef:
        if number >= MAX_PARTS:
            raise InvalidRequest("the object has more parts than S3 allows", key=self._key, limit=MAX_PARTS)
        crc = crc32c_text(extended(0, part.data))

        def request() -> UploadPartOutputTypeDef:
            return self._client.upload_part(
                **self._where,
                UploadId=self._upload_id,
                PartNumber=number + 1,
                Body=cast(Any, SentBody(part.data)),  # botocore needs only read, seek and tell; its stubs require more
                ChecksumCRC32C=crc,
            )

        answer = self._store.repeated_write(self._key, request, self._failed.is_set, len(part.data))
        return {"PartNumber": number + 1, "ETag": answer["ETag"], "ChecksumCRC32C": crc}

    def _complete(self, done: list[CompletedPartTypeDef]) -> None:
        try:
            self._store.repeated_write(
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
            if self._store.made_by(self._mark, self._key):
                return
            if isinstance(error, UploadGone) and self._key_is_taken():
                raise ObjectExists("object exists", key=self._key, store=self._store.description) from error
            raise

    def _key_is_taken(self) -> bool:
        with suppress(TierstateError):
            self._store.head(self._key)
            return True
        return False


def unfinished(store: S3Requests, above: str, prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield unfinished uploads to keys that begin with ``prefix``, below the store's own prefix ``above``."""

    def page_of(beginning: str, **after: str) -> ListMultipartUploadsOutputTypeDef:
        return store.repeated_read(
            prefix,
            lambda: store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=beginning, **cast(Any, after)),
        )

    page = page_of(above + prefix)
    while True:
        uploads = page.get("Uploads", [])
        yield from (_unfinished(upload, above) for upload in uploads)
        if not page.get("IsTruncated") or not (key := page.get("NextKeyMarker")):
            return
        try:
            page = page_of(above + prefix, KeyMarker=key, UploadIdMarker=page.get("NextUploadIdMarker", ""))
        except InvalidRequest:  # versitygw 1.8 refuses its own marker: list this key alone, then later keys
            listed_ids = {upload["UploadId"] for upload in uploads}
            same = (upload for upload in page_of(key).get("Uploads", []) if upload["Key"] == key)
            yield from (_unfinished(upload, above) for upload in same if upload["UploadId"] not in listed_ids)
            page = page_of(above + prefix, KeyMarker=key)


def _unfinished(upload: MultipartUploadTypeDef, above: str) -> UnfinishedUpload:
    return UnfinishedUpload(upload["Key"].removeprefix(above), upload["UploadId"], milliseconds(upload["Initiated"]))


def abort(store: S3Requests, key: str, upload_id: str) -> None:
    """Abort an upload. Idempotent: no error is raised if the upload was completed or aborted before."""
    full = store.full(key)
    with suppress(UploadGone, ObjectNotFound):
        store.repeated_abort(
            key, lambda: store.client.abort_multipart_upload(Bucket=store.bucket, Key=full, UploadId=upload_id)
        )
