"""Requests to one bucket: sent, repeated while that can help, their errors translated."""

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
from .patience import Patience, never
from .s3_errors import KEY_REFUSED, translated
from .s3_options import StoreKeys, s3_client
from .store_date import DateHeard

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

MARKER = "tierstate-upload"
"""Metadata of every object: which write made it. A refused write asks it whether it was itself that won."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

A = TypeVar("A")


class S3Requests:
    """``store`` names the store in errors. Raises InvalidRequest when no client can be built. Thread-safe."""

    def __init__(
        self, bucket: str, store: str, options: StoreOptions, clock: Clock, ids: IdSource, listener: Listener
    ) -> None:
        self.bucket, self.store, self.options, self._ids = bucket, store, options, ids
        self.patience = Patience(options.limits, clock, ids, listener, store)
        self.shares = PartShares(options.concurrency)
        self.checksum_type: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"}
        """What large objects are asked for: a checksum of the whole; empty where the store refuses that."""
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
        """The answer. ``key`` for errors; ``request`` may be sent again, its body of ``size`` bytes too.

        Raises the errors of the seam.
        """
        return self.patience.write(key, lambda: self.once(key, request), given_up, size)

    def read(self, key: str, request: Callable[[], A]) -> A:
        """As `write`, with the patience of a reader."""
        return self.patience.read(key, lambda: self.once(key, request))

    def abort(self, key: str, request: Callable[[], A]) -> A:
        """As `write`, with hardly any patience."""
        return self.patience.abort(key, lambda: self.once(key, request))

    def once(self, key: str, request: Callable[[], A], range: ByteRange | None = None) -> A:
        """Without repeating, but for a key that was refused where there is another now."""
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
        """With the key that it is about; told where it is the key that the store refuses."""
        access_key, code = self._keys.signed_with, failure.facts.get("code")
        if code in KEY_REFUSED - {"403"}:
            self._logins.refused(self.store, access_key, "S3 key", str(code))
        return AccessDenied(failure.message, **failure.facts, access_key=access_key or None)

    def new_marker(self) -> str:
        return self._ids.uuid().hex()

    def made_by(self, marker: str, key: str, full: str) -> bool:
        """Whether the object is the one of this write. False also for readers without permission to know.

        Raises Unavailable: then nobody knows.
        """
        try:
            found = self.write(key, lambda: self.client.head_object(Bucket=self.bucket, Key=full))
        except Unavailable:
            raise
        except TierstateError:
            return False
        return found.get("Metadata", {}).get(MARKER) == marker

    def open_range(self, key: str, full: str, range: ByteRange, etag: str | None) -> tuple[StreamingBody, int, str]:
        """Body, where it stops in the object, ETag. ``etag``: of the object as it was when reading it began."""
        asked = f"bytes={range.start}-{range.stop - 1}"

        def request() -> GetObjectOutputTypeDef:
            if etag is None:
                return self.client.get_object(Bucket=self.bucket, Key=full, Range=asked)
            return self.client.get_object(Bucket=self.bucket, Key=full, Range=asked, IfMatch=etag)

        answer = self.once(key, request, range)
        told = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
        expected = (range.start, min(range.stop, int(told[3])) - 1) if told else None
        if not told or (int(told[1]), int(told[2])) != expected:
            answer["Body"].close()
            raise CorruptData(
                "the store answers another range than asked",
                key=key,
                store=self.store,
                asked=asked.removeprefix("bytes="),
                answered=answer.get("ContentRange", "the whole object"),
            )
        return answer["Body"], int(told[2]) + 1, answer["ETag"]

    def is_missing(self, key: str, full: str) -> bool:
        """HEAD has no body to say what was not found: a missing bucket, or a key that some stores do not find, must not
        read as a missing object. Raises what the store says of those.
        """
        try:
            body, _, _ = self.patience.read(key, lambda: self.open_range(key, full, ByteRange(0, 1), None))
        except (ObjectNotFound, RangeNotSatisfiable):
            return True
        body.close()
        return False
