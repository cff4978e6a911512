"""Positions and times as arguments: ``--from``, ``--to``, ``--before``, ``--to-time``."""

from __future__ import annotations

from typing import Any

import click

from ..app.opening.positions import Position, parse_position, parse_time
from ..state.errors import InvalidRequest
from ..state.offsets import TimestampMs


class TimeType(click.ParamType[TimestampMs]):
    """A click type whose value is a time, in milliseconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TimestampMs:
        if not isinstance(value, str):
            kept: TimestampMs = value
            return kept
        from ..runtime.clock import SystemClock

        try:
            return parse_time(value, SystemClock().now_ms())
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
