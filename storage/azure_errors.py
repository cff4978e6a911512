"""Translates the errors of Microsoft's client to those of `state/errors.py`. This is the only table of codes."""

from __future__ import annotations

from typing import Any

from azure.core import exceptions as azure

from ..state.errors import AccessDenied, InvalidRequest, ObjectExists, StorageUnavailable, TierstateError
from .answers import DAMAGED, EXISTS, MISSING, PAST_END, SILENT, THROTTLED, Meaning, meaning
from .retry_policy import NotRepeatable

BLOCKS_GONE = ("InvalidBlockList", "InvalidBlobOrBlock")
"""Codes for a commit without its blocks. A write of an object removes all uncommitted blocks of that key."""
_MEANINGS: dict[str | int, Meaning] = {
    **dict.fromkeys(BLOCKS_GONE, (NotRepeatable, "the upload is gone: its blocks are not there")),
    "BlobNotFound": MISSING,
    "ResourceNotFound": MISSING,
    "ContainerNotFound": (InvalidRequest, "the container does not exist"),
    "ContainerBeingDeleted": (InvalidRequest, "the container is being deleted"),
    "ContainerDisabled": (InvalidRequest, "the container is disabled"),
    "BlobAlreadyExists": EXISTS,
    "ConditionNotMet": EXISTS,
    "TargetConditionNotMet": EXISTS,
    "PathAlreadyExists": EXISTS,
    "InvalidRange": PAST_END,
    "ServerBusy": THROTTLED,
    "OperationTimedOut": SILENT,
    "Md5Mismatch": DAMAGED,
    "Crc64Mismatch": DAMAGED,
    "AccountIsDisabled": (AccessDenied, "the account is disabled"),
    "BlobArchived": (InvalidRequest, "the object is in the archive tier, where nobody reads it"),
    "LeaseIdMissing": (AccessDenied, "somebody's lease keeps the object"),
    "BlobImmutableDueToPolicy": (AccessDenied, "an immutability policy keeps the object"),
    404: MISSING,
    409: (ObjectExists, "another object has this key, or one that this key cannot stand beside"),
    **dict.fromkeys(range(200, 300), (StorageUnavailable, "the answer breaks off")),
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
    return meaning(_MEANINGS, code, status, reason, key, store)


def _one_line(error: Exception) -> str:
    """Return only the first line. Other lines are ids of the request."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
