"""The choice of an answer's media type and content coding, by the caller's headers (RFC 9110, 12.5), and the coding."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import cramjam
from isal import isal_zlib
from starlette.types import Scope

from .problems import NotAcceptable

KAFKA_JSON = "application/vnd.kafka.json.v2+json"
KAFKA_BINARY = "application/vnd.kafka.binary.v2+json"
NDJSON = "application/x-ndjson"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
BATCHES = "application/vnd.tierstate.batches"

RECORD_TYPES = (NDJSON, KAFKA_BINARY, KAFKA_JSON, JSON, ARROW, PARQUET, BATCHES)
"""The served types, in the order of preference that applies if the caller has none."""

ZSTD_LEVEL = 1
GZIP_LEVEL = 1
_WITH_GZIP_HEADER = 31
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def header(scope: Scope, name: bytes) -> str:
    """Return the values of all headers with this lower-case name, joined by commas."""
    return b", ".join([value for each, value in scope["headers"] if each == name]).decode("latin-1")


@lru_cache(maxsize=64)
def negotiate(accept: str) -> str:
    """Return the type that the caller prefers, or the first in `RECORD_TYPES` of equal ones. Raises NotAcceptable.

    The most specific range that fits a type decides its quality: ``a/b`` before ``a/*`` before ``*/*``; 0 excludes it.
    A range that cannot be read counts as absent.
    """
    ranges = qualities(accept or "*/*")
    best, best_quality = "", 0.0
    for media_type in RECORD_TYPES:
        fitting = [(len(range_.replace("*", "")), quality) for range_, quality in ranges if _fits(range_, media_type)]
        quality = max(fitting)[1] if fitting else 0.0
        if quality > best_quality:
            best, best_quality = media_type, quality
    if not best:
        raise NotAcceptable("none of these media types is served", given=accept, allowed=", ".join(RECORD_TYPES))
    return best


def qualities(header: str) -> list[tuple[str, float]]:
    """Return each listed value with its quality; unreadable ones are left out."""
    return [pair for part in header.split(",") if (pair := _range(part)) is not None]


def _range(part: str) -> tuple[str, float] | None:
    token, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = "1"
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            quality = value.strip()
    if not token or not _QUALITY.fullmatch(quality):
        return None
    return token, float(quality)


def _fits(range_: str, media_type: str) -> bool:
    return range_ in ("*/*", media_type) or (range_.endswith("/*") and media_type.startswith(range_[:-1]))


class Coding(StrEnum):
    """The codings, in order of preference."""

    ZSTD = "zstd"
    GZIP = "gzip"


def coding_of(accept_encoding: str, media_type: str) -> Coding | None:
    """Return the coding that the caller prefers; None for no coding, and for types that are compressed already."""
    if media_type in (BATCHES, PARQUET):
        return None
    named = dict(qualities(accept_encoding))
    best = max(Coding, key=lambda coding: named.get(coding, 0.0))
    return best if named.get(best, 0.0) > max(0.0, named.get("identity", 0.0) - 1e-9) else None


def coder_of(coding: Coding | None) -> _Zstd | _Gzip | None:
    """Return the coder of one answer, or None for no coding. After each `code`, a client can decompress all so far."""
    return None if coding is None else _Zstd() if coding is Coding.ZSTD else _Gzip()


class _Zstd:
    def __init__(self) -> None:
        self._frame = cramjam.zstd.Compressor(ZSTD_LEVEL)

    def code(self, data: bytes | memoryview) -> bytes:
        self._frame.compress(bytes(data))
        return bytes(self._frame.flush())

    def finish(self) -> bytes:
        return bytes(self._frame.finish())


class _Gzip:
    def __init__(self) -> None:
        self._stream = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _WITH_GZIP_HEADER)

    def code(self, data: bytes | memoryview) -> bytes:
        return self._stream.compress(data) + self._stream.flush(isal_zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._stream.flush()
