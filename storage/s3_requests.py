"""Sends requests to one bucket, repeats them while that can help, and translates their errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.listener import Listener
from ..runtime.login_watch import LoginWatch
from ..state.errors import AccessDenied, CorruptData, InvalidRequest, ObjectNotFound, TierstateError, Unavailable
from ..state.offsets import ByteRange
from .object_store import RangeNotSatisfiable, beyond_end
from .options import StoreOptions
from .parts import PartShares
from .retry_policy import RetryPolicy, never
from .s3_errors import KEY_REFUSED, translated
from .s3_options import StoreKeys, s3_client
from .store_date import DateHeard

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

MARKER = "tierstate-upload"
"""Name of the metadata entry that tells which write created an object. A refused write checks if it was itself."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

A = TypeVar("A")


class S3Requests:
    """``store`` names the store in errors. Raises InvalidRequest when no client can be built. Thread-safe."""

    def __init__(
        self, bucket: str, store: str, options: StoreOptions, clock: Clock, ids: IdSource, listener: Listener
    ) -> None:
        self.bucket, self.store, self.options, self._ids = bucket, store, options, ids
        self.retries = RetryPolicy(options.limits, clock, ids, listener, store)
        self.shares = PartShares(options.concurrency)
        self.checksum_type: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"}
        """Requests a checksum of the whole of large objects; empty where the store refuses that."""
        try:
            self._keys = StoreKeys(options, clock)
            self.client: S3Client = s3_client(options, self._keys)
        except (BotoCoreError, ValueError) as error:
            raise InvalidRequest("the S3 client cannot be built", store=store, reason=error) from error
        self._logins = LoginWatch("store", listener)
        self.dates = DateHeard(clock)
        self.client.meta.events.register("after-call.s3", self._hear_date)

    def _hear_date(self, parsed: Mapping[str, Any], **_: object) -> None:
        self.dates.hear(parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))

    def write(self, key: str, request: Callable[[], A], given_up: Callable[[], bool] = never, size: int = 0) -> A:
        """Return the answer. ``key``: for errors. ``request``, including its body of ``size`` bytes, may be sent again.

        Raises the errors that `object_store.py` lists.
        """
        return self.retries.write(key, lambda: self.once(key, request), given_up, size)

    def read(self, key: str, request: Callable[[], A]) -> A:
        """Do what `write` does, with the retry policy of reads."""
        return self.retries.read(key, lambda: self.once(key, request))

    def abort(self, key: str, request: Callable[[], A]) -> A:
        """Do what `write` does, with the short retry policy of aborts."""
        return self.retries.abort(key, lambda: self.once(key, request))

    def once(self, key: str, request: Callable[[], A], range: ByteRange | None = None) -> A:
        """Send a request once, or twice when the store refused its access key and there is a new one."""
        try:
            try:
                answer = request()
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in KEY_REFUSED or not self._keys.renew():
                    raise
                answer = request()
            self._logins.accepted(self.store, self._keys.signed_with)
            return answer
        except (BotoCoreError, ClientError, HTTPError) as error:
            failure = translated(error, key, self.store)
            if isinstance(failure, AccessDenied):
                failure = self._refused(failure)
            if range is not None and isinstance(failure, RangeNotSatisfiable):
                raise beyond_end(key, range, None) from error
            raise failure from error

    def _refused(self, failure: AccessDenied) -> AccessDenied:
        """Return the error with the id of its access key. If the key itself is refused, report it to the listener."""
        access_key, code = self._keys.signed_with, failure.facts.get("code")
        if code in KEY_REFUSED - {"403"}:
            self._logins.refused(self.store, access_key, "S3 key", str(code))
        return AccessDenied(failure.message, **failure.facts, access_key=access_key or None)

    def new_marker(self) -> str:
        return self._ids.uuid().hex()

    def made_by(self, marker: str, key: str, full: str) -> bool:
        """Return whether this write created the object. False also without permission to read its metadata.

        Raises Unavailable when that stays unknown.
        """
        try:
            answer = self.write(key, lambda: self.client.head_object(Bucket=self.bucket, Key=full))
        except Unavailable:
            raise
        except TierstateError:
            return False
        return answer.get("Metadata", {}).get(MARKER) == marker

    def open_range(self, key: str, full: str, range: ByteRange, etag: str | None) -> tuple[StreamingBody, int, str]:
        """Return the body, where it stops in the object, and its ETag. ``etag``: of the object when reading began."""
        range_header = f"bytes={range.start}-{range.stop - 1}"

        def request() -> GetObjectOutputTypeDef:
            if etag is None:
                return self.client.get_object(Bucket=self.bucket, Key=full, Range=range_header)
            return self.client.get_object(Bucket=self.bucket, Key=full, Range=range_header, IfMatch=etag)

        answer = self.once(key, request, range)
        match = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
        expected = (range.start, min(range.stop, int(match[3])) - 1) if match else None
        if not match or (int(match[1]), int(match[2])) != expected:
            answer["Body"].close()
            raise CorruptData(
                "the store answers another range than asked",
                key=key,
                store=self.store,
                asked=range_header.removeprefix("bytes="),
                answered=answer.get("ContentRange", "the whole object"),
            )
        return answer["Body"], int(match[2]) + 1, answer["ETag"]

    def is_missing(self, key: str, full: str) -> bool:
        """Return whether the object is missing, by a GET: a 404 of HEAD has no body, and may mean a missing bucket, or
        an access key that some stores do not find. For those, raises the store's error.
        """
        try:
            body, _, _ = self.retries.read(key, lambda: self.open_range(key, full, ByteRange(0, 1), None))
        except (ObjectNotFound, RangeNotSatisfiable):
            return True
        body.close()
        return False
