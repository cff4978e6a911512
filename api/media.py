"""The choice of an answer's media type: the Accept header against the served types (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

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

_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def header(scope: Scope, name: bytes) -> str:
    """Return the values of all headers with this lower-case name, joined by commas."""
    return b", ".join([value for each, value in scope["headers"] if each == name]).decode("latin-1")


@lru_cache(maxsize=64)
def negotiate(accept: str, served: Sequence[str] = RECORD_TYPES) -> str:
    """Return the type that the caller prefers, or the first in ``served`` of equal ones. Raises NotAcceptable.

    The most specific range that fits a type decides its quality: ``a/b`` before ``a/*`` before ``*/*``; 0 excludes it.
    A range that cannot be read counts as absent.
    """
    ranges = qualities(accept or "*/*")
    best, best_quality = "", 0.0
    for media_type in served:
        fitting = [(len(range_.replace("*", "")), quality) for range_, quality in ranges if _fits(range_, media_type)]
        quality = max(fitting)[1] if fitting else 0.0
        if quality > best_quality:
            best, best_quality = media_type, quality
    if not best:
        raise NotAcceptable("none of these media types is served", given=accept, allowed=", ".join(served))
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
