"""S3 and its compatibles, by boto3. Credentials come from boto3's own chain unless they are given.

Every write carries ``If-None-Match: *``; whether a store obeys it is for `tierstate certify` to say.
Retries of requests are botocore's (back-off with jitter); a body that breaks off is continued here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from ..runtime.clock import Clock, SystemClock
from ..state.errors import (
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageUnavailable,
    TierstateError,
)
from ..state.offsets import ByteRange, TimestampMs
from .object_store import (
    DEFAULT_PART_BYTES,
    MIB,
    Data,
    ObjectInfo,
    RangeNotSatisfiable,
    beyond_end,
    checked_key,
    over_limit,
)
from .s3_errors import answered, retried, translated
from .s3_upload import MultipartUpload, parts_of

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

MIN_PART_BYTES = 5 * MIB
"""S3 refuses smaller parts, but for the last."""
_FOREIGN = (ClientError, BotoCoreError, HTTPError)
_BATCH = 1000
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class S3Options:
    """``path_style`` None: path style with an endpoint, virtual hosts without. Times in seconds.

    ``concurrency``: parts of one upload in flight; an upload holds at most (concurrency + 2) parts.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    connect_timeout: float = 5
    read_timeout: float = 30
    max_attempts: int = 5
    concurrency: int = 2
    credentials: tuple[str, str] | None = field(default=None, repr=False)


class S3Store:
    """Objects of one bucket below one prefix (``a/b``: the store puts a ``/`` between it and a key)."""

    def __init__(
        self, bucket: str, prefix: str = "", options: S3Options | None = None, clock: Clock | None = None
    ) -> None:
        if not bucket:
            raise InvalidRequest("an S3 store has a bucket", example="s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self._options = options or S3Options()
        self._clock = clock or SystemClock()
        try:
            self._client = _client(self._options)
        except (BotoCoreError, ValueError) as error:
            raise InvalidRequest("the S3 client cannot be built", store=self.description, reason=error) from error

    @property
    def description(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put_if_absent(self, key: str, data: Data) -> None:
        body = bytes(data)
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._full(key), Body=body, IfNoneMatch="*")
        except _FOREIGN as error:
            failure = translated(error, key, self.description)
            if isinstance(failure, ObjectExists) and retried(error) and self._holds(key, body):
                return  # our first attempt landed and its answer was lost
            raise failure from error

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        full = self._full(key)
        parts = parts_of(pieces, max(part_bytes, MIN_PART_BYTES))
        first = next(parts, bytearray())
        second = next(parts, None)
        if second is None:
            self.put_if_absent(key, first)
            return len(first)
        upload = MultipartUpload(self._client, self._bucket, full, self.description, self._options.concurrency)
        return upload.send(itertools.chain((first, second), parts))

    def get(self, key: str, limit: int | None = None) -> bytes:
        with self._typed(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key))
        size = answer["ContentLength"]
        with closing(answer["Body"]) as body:
            if limit is not None and size > limit:
                raise over_limit(key, size, limit)
            with suppress(*_FOREIGN):
                return body.read()
        return self.get_range(key, ByteRange(0, size))  # the body broke off: its own retries are there

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return b"".join(self.stream_range(key, range, max(1, len(range))))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        position, stop, failures = range.start, range.stop, 0
        while position < stop:
            body, stop = self._open(key, ByteRange(position, stop))
            with closing(body):
                while position < stop and (piece := _next_piece(body, min(piece_bytes, stop - position))):
                    position += len(piece)
                    yield piece
            if position < stop:
                failures += 1
                if failures >= self._options.max_attempts:
                    raise StorageUnavailable(
                        "the body breaks off", key=key, store=self.description, position=position, attempts=failures
                    )
                self._clock.sleep(0.1 * 2**failures)

    def head(self, key: str) -> ObjectInfo:
        try:
            with self._typed(key):
                found = self._client.head_object(Bucket=self._bucket, Key=self._full(key))
        except ObjectNotFound:
            # HEAD has no body to say what was not found: a missing bucket must not read as a missing object.
            with suppress(RangeNotSatisfiable):
                self.get_range(key, ByteRange(0, 1))
            raise
        return ObjectInfo(key, found["ContentLength"], TimestampMs(int(found["LastModified"].timestamp() * 1000)))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket,
            Prefix=self._prefix + prefix,
            StartAfter=self._prefix + start_after if start_after is not None else "",
        )
        with self._typed(""):
            for page in pages:
                for found in page.get("Contents", ()):
                    key = found["Key"].removeprefix(self._prefix)
                    yield ObjectInfo(key, found["Size"], TimestampMs(int(found["LastModified"].timestamp() * 1000)))

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFound), self._typed(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._full(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        each = iter(keys)
        while batch := tuple(itertools.islice(each, _BATCH)):
            with self._typed(""):
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": self._full(key)} for key in batch], "Quiet": True},
                )
            for refused in answer.get("Errors", ()):
                code, key = refused.get("Code", ""), refused.get("Key", "").removeprefix(self._prefix)
                if code != "NoSuchKey":
                    raise answered(code, 0, refused.get("Message", ""), key, self.description)

    def close(self) -> None:
        self._client.close()

    def _full(self, key: str) -> str:
        return checked_key(self._prefix + checked_key(key))

    def _open(self, key: str, range: ByteRange) -> tuple[StreamingBody, int]:
        """The body of a ranged GET and where it stops in the object."""
        with self._typed(key, range):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._full(key), Range=f"bytes={range.start}-{range.stop - 1}"
            )
        told = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
        expected = (range.start, min(range.stop, int(told[3])) - 1) if told else None
        if not told or (int(told[1]), int(told[2])) != expected:
            answer["Body"].close()
            raise CorruptData(
                "the store answers another range than asked",
                key=key,
                store=self.description,
                asked=f"{range.start}-{range.stop - 1}",
                answered=answer.get("ContentRange", "the whole object"),
            )
        return answer["Body"], int(told[2]) + 1

    def _holds(self, key: str, data: bytes) -> bool:
        with suppress(TierstateError):
            return self.get(key, limit=len(data)) == data
        return False

    @contextmanager
    def _typed(self, key: str, range: ByteRange | None = None) -> Iterator[None]:
        try:
            yield
        except _FOREIGN as error:
            failure = translated(error, key, self.description)
            if range is not None and isinstance(failure, RangeNotSatisfiable):
                raise beyond_end(key, range, None) from error
            raise failure from error


def _next_piece(body: StreamingBody, size: int) -> bytes:
    """Empty when the body broke off."""
    with suppress(*_FOREIGN):
        return body.read(size)
    return b""


def _client(options: S3Options) -> S3Client:
    path_style = options.endpoint is not None if options.path_style is None else options.path_style
    access_key, secret_key = options.credentials or (None, None)
    return boto3.session.Session().client(
        "s3",
        endpoint_url=options.endpoint,
        region_name=options.region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            retries={"mode": "standard", "total_max_attempts": options.max_attempts},
            s3={"addressing_style": "path" if path_style else "auto"},
            max_pool_connections=32,
            user_agent_extra="tierstate",
        ),
    )
