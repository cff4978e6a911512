"""Where to read: ``--from`` and ``--to`` as people write them. Nothing is looked up here.

earliest  latest  17  -5  @2026-01-31T12:00:00Z  @1767225604250  @-3d
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from ..state.errors import InvalidRequest
from ..state.offsets import Offset, TimestampMs

_NO_POSITION = "not a position: write earliest, latest, N, -N (from the end) or @TIME (ISO 8601, epoch ms, @-3d)"


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
    """``count`` offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time."""

    timestamp: TimestampMs


Position = Earliest | Latest | AtOffset | FromEnd | AtTime


def parse_position(text: str, now: TimestampMs) -> Position:
    """InvalidRequest when it is none. ``now`` is what ``@-3d`` counts back from. A time without a zone is UTC."""
    if text == "earliest":
        return Earliest()
    if text == "latest":
        return Latest()
    if re.fullmatch("[0-9]{1,19}", text) and int(text) < 2**63:
        return AtOffset(Offset(int(text)))
    if re.fullmatch("-[0-9]{1,18}", text):
        return FromEnd(int(text[1:]))
    if text.startswith("@"):
        return AtTime(_time(text, now))
    raise InvalidRequest(_NO_POSITION, position=repr(text))


def _time(text: str, now: TimestampMs) -> TimestampMs:
    body = text[1:]
    if re.fullmatch("[0-9]{1,16}", body):  # digits alone are milliseconds, never a date
        return TimestampMs(int(body))
    try:
        if body.startswith("-") and body[1:2].isdigit():
            from ..runtime.units import parse_duration

            if not body[-1].isalpha():
                raise ValueError("a unit is missing")
            return TimestampMs(now - round(parse_duration(body[1:]) * 1000))
        when = datetime.fromisoformat(body)
    except ValueError:
        raise InvalidRequest(_NO_POSITION, position=repr(text)) from None
    zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return TimestampMs((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)


class TimeType(click.ParamType[TimestampMs]):
    """A click type whose value is a time (ms), written as in ``@TIME``, with or without the sign."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TimestampMs:
        if not isinstance(value, str):
            kept: TimestampMs = value
            return kept
        from ..runtime.clock import SystemClock

        try:
            return _time(f"@{value.removeprefix('@')}", SystemClock().now_ms())
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)


class PositionType(click.ParamType[Position]):
    """A click type whose value is a `Position`."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if not isinstance(value, str):
            kept: Position = value
            return kept
        from ..runtime.clock import SystemClock

        try:
            return parse_position(value, SystemClock().now_ms())
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)
