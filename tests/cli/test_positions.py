from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tierstate.app.opening.positions import AtOffset, AtTime, Earliest, FromEnd, Latest, Position, parse_position
from tierstate.cli.parameter_types import POSITION, RATE
from tierstate.state.errors import InvalidRequest
from tierstate.state.offsets import Offset, TimestampMs

NOW = TimestampMs(1_800_000_000_000)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("0", AtOffset(Offset(0))),
        ("17", AtOffset(Offset(17))),
        ("-5", FromEnd(5)),
        ("@1767225604250", AtTime(TimestampMs(1_767_225_604_250))),
        ("@2026-01-01T00:00:04.250Z", AtTime(TimestampMs(1_767_225_604_250))),
        ("@2026-01-01T01:00:04.250+01:00", AtTime(TimestampMs(1_767_225_604_250))),
        ("@2026-01-01", AtTime(TimestampMs(1_767_225_600_000))),
        ("@1969-12-31T23:59:59.999Z", AtTime(TimestampMs(-1))),
        ("@20260101", AtTime(TimestampMs(20_260_101))),
        ("@-3d", AtTime(TimestampMs(NOW - 3 * 86_400_000))),
        ("@-1h30m", AtTime(TimestampMs(NOW - 5_400_000))),
        ("-3d", AtTime(TimestampMs(NOW - 3 * 86_400_000))),
        ("2026-01-01T00:00:04.250Z", AtTime(TimestampMs(1_767_225_604_250))),
        ("2026-01-01", AtTime(TimestampMs(1_767_225_600_000))),
        ("1767225604250", AtOffset(Offset(1_767_225_604_250))),
    ],
)
def test_positions_as_people_write_them(text: str, position: Position) -> None:
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize(
    "text", ["", "first", "--5", "-", "1.5", "@", "@yesterday", "@-3", "@-", "@2026-13-01", "٣", "9" * 19, "@-3w"]
)
def test_an_invalid_position_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidRequest, match="earliest, latest, N, -N"):
        parse_position(text, NOW)


def test_an_offset_from_the_end_is_no_flag_to_the_command_line() -> None:
    positions: list[Position] = []

    @click.command()
    @click.option("--from", "start", type=POSITION, default="earliest")
    def read(start: Position) -> None:
        positions.append(start)

    assert CliRunner().invoke(read, ["--from", "-5"]).exit_code == 0
    assert CliRunner().invoke(read, []).exit_code == 0
    assert CliRunner().invoke(read, ["--from", "soon"]).exit_code == 2
    assert positions == [FromEnd(5), Earliest()]


def test_a_rate_needs_a_unit() -> None:
    assert (RATE.convert("5MiB", None, None), RATE.convert("5MiB/s", None, None)) == (5 << 20, 5 << 20)
    with pytest.raises(click.BadParameter, match="a rate without a unit: 5; write 5MiB"):
        RATE.convert("5", None, None)
    with pytest.raises(click.BadParameter, match=r"a rate without a unit: 1\.5; write 1\.5MiB"):
        RATE.convert("1.5", None, None)
