"""Translates the answers of a store that is accessed by HTTP: errors to those of `state/errors.py`, and body ranges.

404 is not in the table, because it alone does not mean "no such object": stores also answer 404 for a missing bucket.
409 has another meaning in every store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from ..state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from ..state.offsets import ByteRange, TimestampMs
from .object_store import RangeNotSatisfiable

Meaning = tuple[type[TierstateError], str]
MISSING: Meaning = ObjectNotFound, "no such object"
EXISTS: Meaning = ObjectExists, "object exists"
PAST_END: Meaning = RangeNotSatisfiable, "range begins past the end of the object"
REFUSED: Meaning = AccessDenied, "the store refuses"
THROTTLED: Meaning = Throttled, "the store asks to slow down"
FULL: Meaning = StorageFull, "the store has no room"
SILENT: Meaning = StorageUnavailable, "the store does not answer"
DAMAGED: Meaning = StorageUnavailable, "the request was damaged on its way"
_BY_STATUS: dict[int, Meaning] = {
    401: REFUSED,
    403: REFUSED,
    408: SILENT,
    412: EXISTS,
    416: PAST_END,
    429: THROTTLED,
    503: THROTTLED,
    507: FULL,
}
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


def meaning(
    table: Mapping[str | int, Meaning], code: str, status: int, reason: str, key: str, store: str
) -> TierstateError:
    """Return the error for an answer. ``table`` has the store's own codes and statuses, and takes precedence."""
    facts = {"key": key or None, "store": store, "code": code or None, "status": status or None}
    facts["reason"] = reason or None
    if entry := table.get(code) or table.get(status) or _BY_STATUS.get(status):
        return entry[0](entry[1], **facts)
    if status >= 500:
        return StorageUnavailable("the store failed", **facts)
    return InvalidRequest("the store rejects the request", **facts)


def body_range(
    header: str | None, asked: ByteRange, key: str, store: str, length: int | None = None
) -> tuple[int, int]:
    """Return (stop position of the body in the object, the object's size) from the answer's ``Content-Range``.

    ``length`` is the number of bytes in the body, if it was read. Raises CorruptData if the body is not ``asked``,
    clamped to the object.
    """
    match = _CONTENT_RANGE.fullmatch(header or "")
    if match is not None:
        start, last, size = map(int, match.groups())
        if (start, last) == (asked.start, min(asked.stop, size) - 1) and length in (None, last + 1 - start):
            return last + 1, size
    raise CorruptData(
        "the store answers another range than asked",
        key=key,
        store=store,
        asked=f"{asked.start}-{asked.stop - 1}",
        answered=header or "the whole object",
    )


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def milliseconds(moment: datetime) -> TimestampMs:
    return TimestampMs(round(moment.timestamp() * 1000))
