"""Translates the errors of an S3 client to those of `state/errors.py`. This is the only table of codes.

404 alone does not mean "no such object". Stores also answer 404 for a missing bucket and, versitygw, for an unknown
access key.
"""

from __future__ import annotations

from botocore import exceptions as boto

from ..state.errors import AccessDenied, InvalidRequest, StorageUnavailable, TierstateError
from .answers import DAMAGED, EXISTS, FULL, MISSING, PAST_END, REFUSED, SILENT, THROTTLED, Meaning, meaning, one_line
from .retry_policy import NotRepeatable


class UploadGone(NotRepeatable):
    """The error for a multipart upload that was already completed or aborted, by tierstate or by another client."""


_RACED: Meaning = StorageUnavailable, "another writer is at this key"
_MEANINGS: dict[str | int, Meaning] = {
    "NoSuchKey": MISSING,
    "NotFound": MISSING,
    "404": MISSING,
    "NoSuchBucket": (InvalidRequest, "the bucket does not exist"),
    "NoSuchUpload": (UploadGone, "the upload is gone: somebody else aborted it"),
    "InvalidRange": PAST_END,
    "PreconditionFailed": EXISTS,
    "ConditionalRequestConflict": _RACED,
    "OperationAborted": _RACED,
    "XAdminUserNotFound": REFUSED,
    "SlowDown": THROTTLED,
    "RequestLimitExceeded": THROTTLED,
    "TooManyRequests": THROTTLED,
    "RequestTimeout": SILENT,
    "XMinioStorageFull": FULL,
    "QuotaExceeded": FULL,
    "XAmzContentSHA256Mismatch": DAMAGED,
    "BadDigest": DAMAGED,
    "ServiceUnavailable": THROTTLED,
    "InternalError": (StorageUnavailable, "the store failed"),
    "AccessDenied": REFUSED,
    409: (InvalidRequest, "a key cannot lie above or below another object's key in this store"),
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
    facts = {"key": key or None, "store": store, "reason": one_line(error)}
    if isinstance(error, _NO_CREDENTIALS):
        return AccessDenied("no credentials for the store", **facts)
    if isinstance(error, _WRONG_CALL):
        return InvalidRequest("the store cannot be called like this", **facts)
    return StorageUnavailable("the store does not answer", **facts)


def answered(code: str, status: int, reason: str, key: str, store: str) -> TierstateError:
    table = _MEANINGS | {code: THROTTLED} if code.startswith("Throttl") else _MEANINGS
    return meaning(table, code, status, reason, key, store)
