"""Read the segments of a plan without credentials for the bucket: `ObjectReads` over URLs that a gateway issues.

    object key  ->  its segment  ->  grant (requested once, and again before it ends)  ->  GET of a range

If the store refuses a URL, a new grant is requested once: the credentials that signed the URL may expire before the URL
does. If a body breaks off, its rest is requested. Memory: `GRANTS` grants, and a piece.
"""

from __future__ import annotations

import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import urllib3
from cachetools import LRUCache

from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.listener import ignore
from ..state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from ..state.object_keys import ObjectKind, base_of, object_key
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange, TimestampMs
from ..state.segment import RemoteSegment
from ..storage.object_store import MIB, beyond_end, over_limit
from ..storage.retry_policy import Limits, NotRepeatable, RetryPolicy

NAMES: Mapping[str, ObjectKind] = {
    "manifest": ObjectKind.MANIFEST,
    "log": ObjectKind.LOG,
    "indexes": ObjectKind.INDEXES,
}
"""The names of the three objects, in answers and paths."""
GRANTS = 256
"""Segments that a process reads at the same time, at most. Grants of further segments are requested again."""
EARLY_S = 30.0
"""A URL is not used in this many seconds before its end, or in the last fifth of its lifetime if that is shorter."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class DataKey:
    """``wrapped``: the key as in the manifest; ``plain``: the key that decrypts this one segment."""

    wrapped: bytes
    plain: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentGrant:
    """``expires_in_s``: seconds from the answer. ``urls``: absolute, or a path of the gateway itself."""

    expires_in_s: float
    urls: Mapping[ObjectKind, str] = field(repr=False)
    data_key: DataKey | None = None

    def as_json(self) -> dict[str, Any]:
        key = self.data_key
        keys = {} if key is None else {"wrapped": key.wrapped, "plain": key.plain}
        text = {name: b64encode(data).decode() for name, data in keys.items()} or None
        objects = {name: self.urls[kind] for name, kind in NAMES.items()}
        return {"expires_in_seconds": self.expires_in_s, "urls": objects, "data_key": text}


def grant_from(document: Any, source: str) -> SegmentGrant:
    """Return a grant from its JSON. Raises CorruptData naming ``source``."""
    try:
        key = document["data_key"]
        urls = {kind: str(document["urls"][name]) for name, kind in NAMES.items()}
        data_key = None if key is None else DataKey(b64decode(key["wrapped"]), b64decode(key["plain"]))
        return SegmentGrant(float(document["expires_in_seconds"]), urls, data_key)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData("a segment's grant cannot be read", url=source, reason=type(error).__name__) from error


class Grants(Protocol):
    """The requests to a gateway (`gateway_plans.py`). Thread-safe, blocking."""

    def grant(self, segment: RemoteSegment) -> SegmentGrant:
        """Return the segment's grant. Raises SegmentExpired, AccessDenied, Unavailable."""

    def open(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        """Send GET and leave the body unread. ``url`` may be a path of the gateway. Raises urllib3's errors."""


@dataclass(frozen=True, slots=True)
class _Known:
    grant: SegmentGrant
    good_until: float


class GrantedObjects:
    """The objects of these segments, and no others. Thread-safe. It also unwraps their data keys (`KeyUnwrapper`)."""

    def __init__(
        self, segments: Iterable[RemoteSegment], grants: Grants, clock: Clock, limits: Limits | None = None
    ) -> None:
        self._segments = {each.object_key: each for each in segments}
        self._grants, self._clock = grants, clock
        self._retries = RetryPolicy(limits or Limits(), clock, RandomIds(), ignore, "signed URLs")
        self._cache: LRUCache[str, _Known] = LRUCache(GRANTS)
        self._lock = threading.Lock()

    def get(self, key: str, limit: int | None = None) -> bytes:
        """Return the object. Raises ObjectNotFound, InvalidRequest (above ``limit``), AccessDenied, Unavailable."""

        def read() -> bytes:
            with closing(self._opened(key, None)) as answer:
                try:
                    data = answer.read() if limit is None else answer.read(limit + 1)
                except urllib3.exceptions.HTTPError as error:
                    raise _broken(key, 0, error) from error
                if limit is not None and len(data) > limit:
                    raise over_limit(key, int(answer.headers.get("content-length", len(data))), limit)
                return data

        return self._retries.read(key, read)

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        """Stream a range as `ObjectReader.stream_range` does, and continue after a body that breaks off."""
        attempts = self._retries.reading(key)
        position, stop, counted = range.start, range.stop, range.start
        tag: str | None = None
        while position < stop:
            try:
                with closing(self._opened(key, ByteRange(position, stop))) as answer:
                    stop = min(stop, _checked(answer, key, ByteRange(position, stop)))
                    etag = answer.headers.get("etag")
                    if tag is not None and etag != tag:
                        raise NotRepeatable("the object was replaced while it was read", key=key, position=position)
                    tag = etag
                    while position < stop and (piece := answer.read(min(piece_bytes, stop - position))):
                        position += len(piece)
                        yield piece
                if position < stop:
                    raise _broken(key, position, None)
            except (StorageUnavailable, Throttled, urllib3.exceptions.HTTPError) as error:
                if position - counted >= MIB:
                    attempts.progressed()
                    counted = position
                if isinstance(error, urllib3.exceptions.HTTPError):
                    error = _broken(key, position, error)
                attempts.failed(error)

    def head(self, key: str) -> ObjectInfo:
        """Return the object's size by a GET of one byte: URLs are signed for GET only. The time is unknown: 0."""

        def look() -> ObjectInfo:
            answer = self._opened(key, ByteRange(0, 1))
            answer.close()
            content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
            if content_range is None:
                raise CorruptData("the store answers another range than asked", key=key)
            return ObjectInfo(key, int(content_range[3]), TimestampMs(0))

        return self._retries.read(key, look)

    def unwrap(self, key_id: str, wrapped: bytes, fingerprint: str | None = None) -> bytes:
        """Return the data key of a segment that is being read, from its grant. Raises InvalidRequest."""
        with self._lock:
            keys = [held.grant.data_key for held in self._cache.values()]
        for key in keys:
            if key is not None and key.wrapped == wrapped:
                return key.plain
        raise InvalidRequest("the gateway told no data key for the segment", key_id=key_id)

    def close(self) -> None:
        """Do nothing: no connection is open between two reads."""

    def _opened(self, key: str, range: ByteRange | None) -> urllib3.BaseHTTPResponse:
        """Return an answer of status 200 or 206. Raises the errors of a store."""
        headers = {"accept-encoding": "identity"}
        if range is not None:
            headers["range"] = f"bytes={range.start}-{range.stop - 1}"
        base = base_of(key)
        kind = next((each for each in ObjectKind if key == object_key(base, each)), None)
        if kind is None:
            raise InvalidRequest("not an object of this plan", key=key)
        for again in (False, True):
            grant = self._granted(base, anew=again)
            try:
                answer = self._grants.open(grant.urls[kind], headers)
            except urllib3.exceptions.HTTPError as error:
                raise StorageUnavailable("the store does not answer", key=key, reason=_reason(error)) from error
            if answer.status in (200, 206):
                return answer
            answer.drain_conn()
            if answer.status not in (400, 401, 403, 410) or again:
                break
        raise _refused(answer.status, key, range)

    def _granted(self, base: str, *, anew: bool) -> SegmentGrant:
        with self._lock:
            cached = None if anew else self._cache.get(base)
        if cached is not None and self._clock.monotonic() < cached.good_until:
            return cached.grant
        segment = self._segments.get(base)
        if segment is None:
            raise InvalidRequest("not an object of this plan", key=base)
        requested_at = self._clock.monotonic()
        grant = self._grants.grant(segment)
        lasts = grant.expires_in_s
        with self._lock:
            self._cache[base] = _Known(grant, requested_at + max(lasts - EARLY_S, lasts * 0.8))
        return grant


def _checked(answer: urllib3.BaseHTTPResponse, key: str, byte_range: ByteRange) -> int:
    """Return the position in the object where the answer stops. Raises CorruptData for another range than requested."""
    span = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
    if span is None or int(span[1]) != byte_range.start or int(span[2]) + 1 != min(byte_range.stop, int(span[3])):
        if span is not None and int(span[3]) <= byte_range.start:
            raise beyond_end(key, byte_range, int(span[3]))
        raise CorruptData(
            "the store answers another range than asked",
            key=key,
            asked=f"{byte_range.start}-{byte_range.stop - 1}",
            answered=answer.headers.get("content-range", "the whole object"),
        )
    return int(span[2]) + 1


def _refused(status: int, key: str, range: ByteRange | None) -> TierstateError:
    match status:
        case 404:
            return ObjectNotFound("no such object", key=key)
        case 416 if range is not None:
            return beyond_end(key, range, None)
        case 400 | 401 | 403 | 410:
            return AccessDenied("the store refuses the URL that the gateway gave", key=key, status=status)
        case 429 | 503:
            return Throttled("the store asks to slow down", key=key, status=status)
        case _ if status >= 500:
            return StorageUnavailable("the store failed", key=key, status=status)
        case _:
            return InvalidRequest("the store rejects the request", key=key, status=status)


def _broken(key: str, position: int, error: Exception | None) -> StorageUnavailable:
    reason = None if error is None else _reason(error)
    return StorageUnavailable("the body breaks off", key=key, position=position, reason=reason)


def _reason(error: Exception) -> str:
    """Return the error's class, without the URL: a log with the URL would give access to the object."""
    cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None else error
    return type(cause).__name__
