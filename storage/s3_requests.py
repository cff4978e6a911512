"""Sends requests to S3 with boto3: repeats them, renews the access key, and translates errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from ..runtime.login_watch import LoginWatch
from ..state.errors import AccessDenied, InvalidRequest, TierstateError, Unavailable
from .cloud_store import CloudStore
from .s3_errors import KEY_REFUSED, translated
from .s3_options import StoreKeys, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

A = TypeVar("A")
MARKER = "tierstate-upload"
"""Name of the metadata entry that shows which write created an object, also to a write that was refused."""


class S3Requests(CloudStore):
    """The part of `S3Store` that its multipart uploads use too."""

    def _connect(self) -> None:
        try:
            self._keys = StoreKeys(self.options, self.clock)
            self.client: S3Client = s3_client(self.options, self._keys)
        except (BotoCoreError, ValueError) as error:
            raise InvalidRequest("the S3 client cannot be built", store=self.description, reason=error) from error
        self.checksum_type: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"}
        """Arguments that request a checksum over all bytes of large objects. Empty if the store refuses them."""
        self._logins = LoginWatch("store", self._listener)
        self.client.meta.events.register("after-call.s3", self._after_call)

    def once(self, key: str, request: Callable[[], A]) -> A:
        """Send a request once. If the store refuses its access key and there is a new key, send it once more."""
        try:
            try:
                answer = request()
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in KEY_REFUSED or not self._keys.renew():
                    raise
                answer = request()
            self._logins.accepted(self.description, self._keys.signed_with)
            return answer
        except (BotoCoreError, ClientError, HTTPError) as error:
            failure = translated(error, key, self.description)
            raise (self._refused(failure) if isinstance(failure, AccessDenied) else failure) from error

    def write_arguments(self, key: str) -> dict[str, Any]:
        """Return the arguments of every request that creates this object."""
        encryption = None if self.options.sse == "none" else self.options.sse
        arguments = {
            "ServerSideEncryption": encryption,
            "SSEKMSKeyId": self.options.sse_kms_key_id,
            "StorageClass": self.class_of(key),
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def repeated_abort(self, key: str, request: Callable[[], A]) -> A:
        return self._retries.abort(key, lambda: self.once(key, request))

    def made_by(self, mark: str, key: str) -> bool:
        """Return whether the write with this mark created the object. False also if its metadata cannot be read.

        Raises Unavailable if the store does not answer.
        """
        full = self.full(key)
        try:
            answer = self.repeated_write(key, lambda: self.client.head_object(Bucket=self.bucket, Key=full))
        except Unavailable:
            raise
        except TierstateError:
            return False
        return answer.get("Metadata", {}).get(MARKER) == mark

    def _refused(self, failure: AccessDenied) -> AccessDenied:
        """Return the error with the id of the access key. If the store refuses the key itself, notify the listener."""
        access_key, code = self._keys.signed_with, failure.facts.get("code")
        if code in KEY_REFUSED - {"403"}:
            self._logins.refused(self.description, access_key, "S3 key", str(code))
        return AccessDenied(failure.message, **failure.facts, access_key=access_key or None)

    def _after_call(self, parsed: Mapping[str, Any], **_: object) -> None:
        self.hear_date(parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
