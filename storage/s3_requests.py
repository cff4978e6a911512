"""Sends requests to one bucket, repeats them by the retry policy, and translates their errors."""

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
"""Name of the metadata entry that shows which write created an object, also to a write that was refused."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

A = TypeVar("A")


class S3Requests:
    """Requests to one bucket. ``store`` names it in errors. Thread-safe. Raises InvalidRequest for wrong options."""

    def __init__(
        self, bucket: str, store: str, options: StoreOptions, clock: Clock, ids: IdSource, listener: Listener
    ) -> None:
        self.bucket, self.store, self.options, self._ids = bucket, store, options, ids
        self.retries = RetryPolicy(options.limits, clock, ids, listener, store)
        self.shares = PartShares(options.concurrency)
        self.checksum_type: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"}
        """Arguments that request a checksum over all bytes of large objects. Empty if the store refuses them."""
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
        """Return the answer of ``request``, which may be repeated. ``key`` is for errors, ``size`` the body's bytes.

        Raises the errors that `object_store.py` lists.
        """
        return self.retries.write(key, lambda: self.once(key, request), given_up, size)

    def read(self, key: str, request: Callable[[], A]) -> A:
        """Do the same as `write`, with the retry policy of reads."""
        return self.retries.read(key, lambda: self.once(key, request))

    def abort(self, key: str, request: Callable[[], A]) -> A:
        """Do the same as `write`, with the short retry policy of aborts."""
        return self.retries.abort(key, lambda: self.once(key, request))

    def once(self, key: str, request: Callable[[], A], range: ByteRange | None = None) -> A:
        """Send a request once. If the store refuses its access key and there is a new key, send it once more."""
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
        """Return the error with the id of the access key. If the store refuses the key itself, notify the listener."""
        access_key, code = self._keys.signed_with, failure.facts.get("code")
        if code in KEY_REFUSED - {"403"}:
            self._logins.refused(self.store, access_key, "S3 key", str(code))
        return AccessDenied(failure.message, **failure.facts, access_key=access_key or None)

    def new_marker(self) -> str:
        return self._ids.uuid().hex()

    def made_by(self, marker: str, key: str, full: str) -> bool:
        """Return whether the write with this marker created the object. False also if its metadata cannot be read.

        Raises Unavailable if the store does not answer.
        """
        try:
            answer = self.write(key, lambda: self.client.head_object(Bucket=self.bucket, Key=full))
        except Unavailable:
            raise
        except TierstateError:
            return False
        return answer.get("Metadata", {}).get(MARKER) == marker

    def open_range(self, key: str, full: str, range: ByteRange, etag: str | None) -> tuple[StreamingBody, int, str]:
        """Return (body, its stop position in the object, ETag). With ``etag``, the object must still have that ETag."""
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
        """Return whether the object is missing, checked by a GET. A 404 of a HEAD has no body, so that it may also mean
        a missing bucket or, in some stores, an unknown access key. In these cases, raises the error for them.
        """
        try:
            body, _, _ = self.retries.read(key, lambda: self.open_range(key, full, ByteRange(0, 1), None))
        except (ObjectNotFound, RangeNotSatisfiable):
            return True
        body.close()
        return False
