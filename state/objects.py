"""Descriptions of objects and uploads that any object store returns, and the keys that all stores accept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import InvalidRequest
from .offsets import TimestampMs

MAX_KEY_BYTES = 1024
"""S3's limit for keys, which includes the prefix of the store's URL."""
TEMPORARY_FOLDER = ".tierstate-tmp"
"""The folder in which `storage/directory.py` keeps unfinished objects; no key may begin with it, in any store."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. ``size`` is in bytes; ``modified_at`` is the store's time in milliseconds since the epoch.

    ``crc32c``: the CRC-32C of the complete object, if the store itself keeps it; None otherwise, and in listings.
    """

    key: str
    size: int
    modified_at: TimestampMs
    crc32c: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """The stored parts of an upload that has not ended. Readers see no object, but the parts may cost money.

    ``key`` is the key passed to `put_stream`; empty if the store does not keep it. ``upload_id`` is the store's own id.
    """

    key: str
    upload_id: str
    started_at: TimestampMs


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def checked_key(key: str) -> str:
    """Return ``key`` unchanged. Raises InvalidRequest if a store might refuse, normalise or hide the key."""
    parts = key.split("/")
    if not key or "" in parts:
        raise InvalidRequest("an object key has no empty parts", key=repr(key))
    if "." in parts or ".." in parts:
        raise InvalidRequest("an object key has no parts '.' or '..'", key=repr(key))
    if parts[0] == TEMPORARY_FOLDER:
        raise InvalidRequest("this key prefix is reserved for unfinished objects", key=repr(key))
    if _CONTROL.search(key):
        raise InvalidRequest("an object key has no control characters", key=repr(key))
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest("an object key is valid Unicode", key=repr(key)) from error
    if length > MAX_KEY_BYTES:
        raise InvalidRequest("object key is too long", key=repr(key), bytes=length, limit=MAX_KEY_BYTES)
    return key
