"""One multipart upload: parts in parallel, bounded memory, completed only if the key is still free, else aborted."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from ..state.errors import InvalidRequest
from .object_store import Data
from .s3_errors import retried, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MAX_PARTS = 10_000
"""S3's limit; 8 MiB parts reach 78 GiB, far above a segment's 2 GiB."""

A = TypeVar("A")


def parts_of(pieces: Iterable[Data], part_bytes: int) -> Iterator[bytearray]:
    """Pieces of any size re-cut into parts of exactly ``part_bytes``, the last one shorter; each a buffer of its own.

    Not bytes: that would be a copy here, and another where botocore puts a body of bytes behind its headers.
    """
    part = bytearray()
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while rest:
            taken = rest[: part_bytes - len(part)]
            part += taken
            rest = rest[len(taken) :]
            if len(part) == part_bytes:
                yield part
                part = bytearray()
    if part:
        yield part


class MultipartUpload:
    """Created on the first part, closed by `finish` or `abort`."""

    def __init__(self, client: S3Client, bucket: str, key: str, store: str, concurrency: int) -> None:
        self._client, self._bucket, self._key, self._store = client, bucket, key, store
        self._concurrency = concurrency
        self._upload_id = self._answer(
            lambda: client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="CRC32")
        )["UploadId"]

    def send(self, parts: Iterable[bytearray]) -> int:
        """Uploads every part and completes the object; returns its bytes. Aborts on any failure, the iterator's too."""
        size = 0
        done: list[CompletedPartTypeDef] = []
        waiting: deque[Future[CompletedPartTypeDef]] = deque()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="tierstate-part") as pool:
            try:
                for number, part in enumerate(parts, 1):
                    size += len(part)
                    if number > MAX_PARTS:
                        raise InvalidRequest("the object has more parts than S3 allows", key=self._key, limit=MAX_PARTS)
                    waiting.append(pool.submit(self._part, number, part))
                    if len(waiting) >= self._concurrency:
                        done.append(waiting.popleft().result())
                done.extend(each.result() for each in waiting)
                self._complete(done, size)
            except BaseException:  # also a closed generator or an interrupt: an upload without an end costs money
                for each in waiting:
                    each.cancel()
                for each in waiting:
                    with suppress(BaseException):
                        each.result()  # a part that lands after the abort would keep the upload alive
                self._abort()
                raise
        return size

    def _part(self, number: int, data: bytearray) -> CompletedPartTypeDef:
        crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        answer = self._answer(
            lambda: self._client.upload_part(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                PartNumber=number,
                Body=cast(Any, data),  # botocore takes a bytearray, its stubs do not say so
                ChecksumCRC32=crc,
            )
        )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": crc}

    def _complete(self, done: list[CompletedPartTypeDef], size: int) -> None:
        try:
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                MultipartUpload={"Parts": done},
                IfNoneMatch="*",
            )
        except (ClientError, BotoCoreError) as error:
            # A lost answer: the retry meets our own object (412) or an upload that is no more (404), or there was none.
            lost = not isinstance(error, ClientError) or retried(error)
            if not (lost and self._is_ours(done, size)):
                raise self._failed(error) from error

    def _is_ours(self, done: list[CompletedPartTypeDef], size: int) -> bool:
        """Whether the object has the ETag of exactly our parts: MD5 over the parts' MD5s, dash, their count."""
        with suppress(ClientError, BotoCoreError, ValueError):
            found = self._client.head_object(Bucket=self._bucket, Key=self._key)
            digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in done)
            ours = f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(done)}"
            return found["ContentLength"] == size and found["ETag"].strip('"') == ours
        return False

    def _abort(self) -> None:
        with suppress(ClientError, BotoCoreError):  # the first error counts; a lifecycle rule removes what is left
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload_id)

    def _answer(self, call: Callable[[], A]) -> A:
        try:
            return call()
        except (ClientError, BotoCoreError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Exception:
        return translated(error, self._key, self._store)
