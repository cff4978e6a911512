"""Positions to read from and to, as people write them, and the offsets that they mean.

earliest  latest  17  -5  2026-01-31T12:00:00Z  -3d  @1767225604250

A time is written in one way everywhere: in commands, in Python, over HTTP and in Spark (`parse_time`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

from ...runtime.units import parse_duration
from ...state.errors import InvalidRequest, OffsetOutOfRange
from ...state.offsets import Offset, TimestampMs
from ...state.partition_view import PartitionView
from ...state.routing import Isolation, LocalBounds, Tier

if TYPE_CHECKING:
    from ...fetch.source import RecordSource

_NO_TIME = "not a time: write ISO 8601 (2026-01-31T12:00:00Z), milliseconds since the epoch, or -3d"
_NO_POSITION = "not a position: write earliest, latest, N, -N (from the end) or a time (ISO 8601, -3d, @epoch ms)"


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset over both tiers."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end: high watermark, or last stable offset under read_committed."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: Offset


@dataclass(frozen=True, slots=True)
class FromEnd:
    """The offset that is ``count`` offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time."""

    timestamp: TimestampMs


Bounded = Earliest | Latest | AtOffset | FromEnd
Position = Bounded | AtTime


def parse_position(text: str, now: TimestampMs) -> Position:
    """Return the position that ``text`` means. Raises InvalidRequest if there is none. ``-3d`` is 3 days before
    ``now``. Digits alone are an offset. A time in milliseconds must begin with ``@``; any other time may.
    """
    if text == "earliest":
        return Earliest()
    if text == "latest":
        return Latest()
    if re.fullmatch("[0-9]{1,19}", text) and int(text) < 2**63:
        return AtOffset(Offset(int(text)))
    if re.fullmatch("-[0-9]{1,18}", text):
        return FromEnd(int(text[1:]))
    try:
        return AtTime(parse_time(text, now))
    except InvalidRequest:
        raise InvalidRequest(_NO_POSITION, position=repr(text)) from None


def parse_time(text: str, now: TimestampMs) -> TimestampMs:
    """Return the time that ``text`` means: ISO 8601 (UTC if it has no zone), milliseconds since the epoch, or ``-3d``
    (3 days before ``now``). It may begin with ``@``. Raises InvalidRequest for any other text.
    """
    body = text.removeprefix("@")
    if re.fullmatch("[0-9]{1,19}", body) and int(body) < 2**63:  # digits alone are milliseconds, never a date
        return TimestampMs(int(body))
    try:
        if body.startswith("-") and body[1:2].isdigit():
            if not body[-1].isalpha():
                raise ValueError("a unit is missing")
            return TimestampMs(now - round(parse_duration(body[1:]) * 1000))
        when = datetime.fromisoformat(body)
    except ValueError:
        raise InvalidRequest(_NO_TIME, time=repr(text)) from None
    zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return TimestampMs((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)


def offset_of(
    position: Position, source: RecordSource, topic: str, partition: int, isolation: Isolation, tier: Tier
) -> Offset:
    """Return the present offset of a position. A time after the last record means the end. Raises OffsetOutOfRange."""
    start, end = source.extent(topic, partition, isolation, tier)
    if isinstance(position, AtTime):
        first = source.first_at(topic, partition, position.timestamp)
        return end if first is None else Offset(min(max(first, start), end))
    offset = _between(position, start, end)
    if not start <= offset <= end:
        raise OffsetOutOfRange(
            "offset out of range", valid_start=start, valid_end=end, topic=topic, partition=partition, offset=offset
        )
    return offset


def offset_before(before: Bounded, view: PartitionView, bounds: LocalBounds) -> Offset:
    """Return the offset for `delete-records`; the end is the last stable offset. `plan_delete` checks the offset."""
    start = bounds.local_start if view.log_start is None else view.log_start
    return _between(before, start, bounds.last_stable_offset)


def _between(position: Bounded, start: Offset, end: Offset) -> Offset:
    match position:
        case Earliest():
            return start
        case Latest():
            return end
        case AtOffset(offset=offset):
            return offset
        case FromEnd(count=count):
            return Offset(max(start, end - count))
        case _:
            assert_never(position)
