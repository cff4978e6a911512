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

from ..state.errors import AccessDenied, InvalidRequest, ObjectExists, StorageUnavailable, TierstateError
from .answers import MISSING, THROTTLED, Meaning, meaning, one_line

BROKEN_BODY: tuple[type[Exception], ...] = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    HTTPException,
    ConnectionError,
    TimeoutError,
)
FOREIGN: tuple[type[Exception], ...] = (
    google.GoogleAPIError,
    google_auth.GoogleAuthError,
    google_storage.InvalidResponse,
    google_storage.DataCorruption,
    *BROKEN_BODY,
)
_MEANINGS: dict[str | int, Meaning] = {404: MISSING, 409: (ObjectExists, "another writer has this key")}
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
        return answered(int(error.code), reason, one_line(error), key, store)
    if isinstance(error, google_storage.InvalidResponse):
        return answered(int(error.response.status_code), "", one_line(error), key, store)
    facts = {"key": key or None, "store": store, "reason": one_line(error)}
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
    table = _MEANINGS
    if status == 403 and code in _THROTTLING:
        table = {403: THROTTLED}
    if status == 404 and _NO_BUCKET in reason:
        table = {404: (InvalidRequest, "the bucket does not exist")}
    return meaning(table, code, status, reason, key, store)
