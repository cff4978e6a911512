"""Translates the errors of Microsoft's client to those of `state/errors.py`. This is the only table of codes."""

from __future__ import annotations

from typing import Any

from azure.core import exceptions as azure

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

_BY_CODE: dict[str, tuple[type[TierstateError], str]] = {
    "BlobNotFound": (ObjectNotFound, "no such object"),
    "ResourceNotFound": (ObjectNotFound, "no such object"),
    "ContainerNotFound": (InvalidRequest, "the container does not exist"),
    "ContainerBeingDeleted": (InvalidRequest, "the container is being deleted"),
    "ContainerDisabled": (InvalidRequest, "the container is disabled"),
    "BlobAlreadyExists": (ObjectExists, "object exists"),
    "ConditionNotMet": (ObjectExists, "object exists"),
    "TargetConditionNotMet": (ObjectExists, "object exists"),
    "PathAlreadyExists": (ObjectExists, "object exists"),
    "InvalidRange": (RangeNotSatisfiable, "range begins past the end of the object"),
    "ServerBusy": (Throttled, "the store asks to slow down"),
    "OperationTimedOut": (StorageUnavailable, "the store does not answer"),
    "Md5Mismatch": (StorageUnavailable, "the request was damaged on its way"),
    "Crc64Mismatch": (StorageUnavailable, "the request was damaged on its way"),
    "AccountIsDisabled": (AccessDenied, "the account is disabled"),
    "BlobArchived": (InvalidRequest, "the object is in the archive tier, where nobody reads it"),
    "LeaseIdMissing": (AccessDenied, "somebody's lease keeps the object"),
    "BlobImmutableDueToPolicy": (AccessDenied, "an immutability policy keeps the object"),
}
BLOCKS_GONE = ("InvalidBlockList", "InvalidBlobOrBlock")
"""Codes for a commit without its blocks. A write of an object removes all uncommitted blocks of that key."""
_BY_STATUS: dict[int, tuple[type[TierstateError], str]] = {
    401: (AccessDenied, "the store refuses"),
    403: (AccessDenied, "the store refuses"),
    404: (ObjectNotFound, "no such object"),
    408: (StorageUnavailable, "the store does not answer"),
    409: (ObjectExists, "another object has this key, or one that this key cannot stand beside"),
    412: (ObjectExists, "object exists"),
    416: (RangeNotSatisfiable, "range begins past the end of the object"),
    429: (Throttled, "the store asks to slow down"),
    503: (Throttled, "the store asks to slow down"),
    507: (StorageFull, "the store has no room"),
}


def translated(error: azure.AzureError, key: str, store: str) -> TierstateError:
    """Return the error of `state/errors.py` for any error of azure-core, azure-identity or azure-storage-blob."""
    if isinstance(error, azure.HttpResponseError) and error.response is not None:
        response: Any = error.response
        code = str(response.headers.get("x-ms-error-code") or "")
        return answered(code, int(error.status_code or 0), _one_line(error), key, store)
    facts = {"key": key or None, "store": store, "reason": _one_line(error)}
    if isinstance(error, azure.ClientAuthenticationError):  # there was no request: no credentials were found
        return AccessDenied("no credentials for the store", **facts)
    return StorageUnavailable("the store does not answer", **facts)


def answered(code: str, status: int, reason: str, key: str, store: str) -> TierstateError:
    """Return the error of `state/errors.py` for an answer of the store."""
    facts = {"key": key or None, "store": store, "code": code or None, "status": status or None}
    facts["reason"] = reason or None
    if code in BLOCKS_GONE:
        return NotRepeatable("the upload is gone: its blocks are not there", **facts)
    if entry := _BY_CODE.get(code) or _BY_STATUS.get(status):
        return entry[0](entry[1], **facts)
    if status >= 500:
        return StorageUnavailable("the store failed", **facts)
    if 200 <= status < 300:
        return StorageUnavailable("the answer breaks off", **facts)
    return InvalidRequest("the store rejects the request", **facts)


def _one_line(error: Exception) -> str:
    """Return only the first line. Other lines are ids of the request."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
