"""Translates the errors of Google's client to those of `state/errors.py`. This is the only table of codes.

404 alone does not mean "no such object", because Google also answers 404 for a missing bucket. If the answer does not
show which, `gcs.py` sends another request.
"""

from __future__ import annotations

from http.client import HTTPException
from typing import Any

import requests
import urllib3
from google.api_core import exceptions as google
from google.auth import exceptions as google_auth
from google.cloud.storage import exceptions as google_storage

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

FOREIGN: tuple[type[Exception], ...] = (
    google.GoogleAPIError,
    google_auth.GoogleAuthError,
    google_storage.InvalidResponse,
    google_storage.DataCorruption,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    HTTPException,
    ConnectionError,
    TimeoutError,
)
BROKEN_BODY: tuple[type[Exception], ...] = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    HTTPException,
    ConnectionError,
    TimeoutError,
)
_BY_STATUS: dict[int, tuple[type[TierstateError], str]] = {
    401: (AccessDenied, "the store refuses"),
    403: (AccessDenied, "the store refuses"),
    404: (ObjectNotFound, "no such object"),
    408: (StorageUnavailable, "the store does not answer"),
    409: (ObjectExists, "another writer has this key"),
    412: (ObjectExists, "object exists"),
    416: (RangeNotSatisfiable, "range begins past the end of the object"),
    429: (Throttled, "the store asks to slow down"),
    503: (Throttled, "the store asks to slow down"),
    507: (StorageFull, "the store has no room"),
}
_THROTTLING = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded")
"""Reasons in a 403 that mean throttling and not a missing permission."""
NO_OBJECT = "No such object"
"""Text in Google's 404 if the bucket exists but the object does not. Other servers answer 404 without this text."""
_NO_BUCKET = "The specified bucket does not exist"
_NO_CREDENTIALS = (google_auth.DefaultCredentialsError, google_auth.RefreshError)


def translated(error: BaseException, key: str, store: str) -> TierstateError:
    """Return the error of `state/errors.py` for any error in `FOREIGN`."""
    if isinstance(error, google.GoogleAPICallError) and error.code is not None:
        reason = next((str(each.get("reason", "")) for each in error.errors if isinstance(each, dict)), "")
        return answered(int(error.code), reason, _one_line(error), key, store)
    if isinstance(error, google_storage.InvalidResponse):
        return answered(int(error.response.status_code), "", _one_line(error), key, store)
    facts = {"key": key or None, "store": store, "reason": _one_line(error)}
    if isinstance(error, _NO_CREDENTIALS) and not error.retryable:
        return AccessDenied("no credentials for the store", **facts)
    if isinstance(error, google_storage.DataCorruption):
        return StorageUnavailable("the request was damaged on its way", **facts)
    return StorageUnavailable("the store does not answer", **facts)


def refused(answer: Any) -> Exception:
    """Return the error that Google's client would raise for this answer, for requests without that client."""
    make: Any = google.from_http_response
    error: Exception = make(answer)
    return error


def answered(status: int, code: str, reason: str, key: str, store: str) -> TierstateError:
    """Return the error for an answer of the store. ``code`` is Google's reason, such as ``rateLimitExceeded``."""
    facts = {"key": key or None, "store": store, "code": code or None, "status": status, "reason": reason or None}
    if status == 403 and code in _THROTTLING:
        return Throttled("the store asks to slow down", **facts)
    if status == 404 and _NO_BUCKET in reason:
        return InvalidRequest("the bucket does not exist", **facts)
    if entry := _BY_STATUS.get(status):
        return entry[0](entry[1], **facts)
    if status >= 500:
        return StorageUnavailable("the store failed", **facts)
    return InvalidRequest("the store rejects the request", **facts)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
