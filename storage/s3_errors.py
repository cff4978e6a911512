"""Translates the errors of an S3 client to those of `state/errors.py`. This is the only table of codes.

404 alone does not mean "no such object". Stores also answer 404 for a missing bucket and, versitygw, for an unknown
access key.
"""

from __future__ import annotations

from botocore import exceptions as boto

from ..state.errors import (
    AccessDenied,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from .object_store import RangeNotSatisfiable
from .retry_policy import NotRepeatable


class UploadGone(NotRepeatable):
    """The error for a multipart upload that was already completed or aborted, by tierstate or by another client."""


_BY_CODE: dict[str, tuple[type[TierstateError], str]] = {
    "NoSuchKey": (ObjectNotFound, "no such object"),
    "NotFound": (ObjectNotFound, "no such object"),
    "404": (ObjectNotFound, "no such object"),
    "NoSuchBucket": (InvalidRequest, "the bucket does not exist"),
    "NoSuchUpload": (UploadGone, "the upload is gone: somebody else aborted it"),
    "InvalidRange": (RangeNotSatisfiable, "range begins past the end of the object"),
    "PreconditionFailed": (ObjectExists, "object exists"),
    "ConditionalRequestConflict": (StorageUnavailable, "another writer is at this key"),
    "OperationAborted": (StorageUnavailable, "another writer is at this key"),
    "XAdminUserNotFound": (AccessDenied, "the store refuses"),
    "SlowDown": (Throttled, "the store asks to slow down"),
    "RequestLimitExceeded": (Throttled, "the store asks to slow down"),
    "TooManyRequests": (Throttled, "the store asks to slow down"),
    "RequestTimeout": (StorageUnavailable, "the store does not answer"),
    "XMinioStorageFull": (StorageFull, "the store has no room"),
    "QuotaExceeded": (StorageFull, "the store has no room"),
    "XAmzContentSHA256Mismatch": (StorageUnavailable, "the request was damaged on its way"),
    "BadDigest": (StorageUnavailable, "the request was damaged on its way"),
}
_BY_STATUS: dict[int, tuple[type[TierstateError], str]] = {
    401: (AccessDenied, "the store refuses"),
    403: (AccessDenied, "the store refuses"),
    409: (InvalidRequest, "a key cannot lie above or below another object's key in this store"),
    412: (ObjectExists, "object exists"),
    416: (RangeNotSatisfiable, "range begins past the end of the object"),
    429: (Throttled, "the store asks to slow down"),
    503: (Throttled, "the store asks to slow down"),
    507: (StorageFull, "the store has no room"),
}
KEY_REFUSED = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "XAdminUserNotFound",
    "InvalidToken",
    "ExpiredToken",
    "403",  # of a HEAD, whose answer has no body and so no code
}
"""Codes that may mean that the store refuses the access key itself, not that a permission is missing."""
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
    boto.SSOError,
)
_WRONG_CALL = (
    boto.ParamValidationError,
    boto.NoRegionError,
    boto.InvalidRegionError,
    boto.InvalidDNSNameError,
    boto.InvalidConfigError,
    boto.EndpointResolutionError,
)


def translated(error: Exception, key: str, store: str) -> TierstateError:
    """Return the error of `state/errors.py` for any error of botocore or urllib3."""
    if isinstance(error, boto.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        details = error.response.get("Error", {})
        return answered(str(details.get("Code", "")), status, str(details.get("Message", "")), key, store)
    facts = {"key": key or None, "store": store, "reason": _one_line(error)}
    if isinstance(error, _NO_CREDENTIALS):
        return AccessDenied("no credentials for the store", **facts)
    if isinstance(error, _WRONG_CALL):
        return InvalidRequest("the store cannot be called like this", **facts)
    return StorageUnavailable("the store does not answer", **facts)


def answered(code: str, status: int, reason: str, key: str, store: str) -> TierstateError:
    """Return the error of `state/errors.py` for an answer of the store."""
    facts = {"key": key or None, "store": store, "code": code, "status": status or None, "reason": reason or None}
    if code.startswith("Throttl"):
        return Throttled("the store asks to slow down", **facts)
    if entry := _BY_CODE.get(code) or _BY_STATUS.get(status):
        return entry[0](entry[1], **facts)
    if status >= 500 or code in ("InternalError", "ServiceUnavailable"):
        return StorageUnavailable("the store failed", **facts)
    if code == "AccessDenied":
        return AccessDenied("the store refuses", **facts)
    return InvalidRequest("the store rejects the request", **facts)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
