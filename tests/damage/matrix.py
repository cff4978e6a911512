from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from tests.damage.damages import Damage, damages
from tests.damage.readers import Reader
from tests.damage.segments import Row, Segments
from tierstate.state.errors import TierstateError
from tierstate.state.offsets import Extent, Offset

WHOLE, PART = "whole", "part"
PART_OF_SEGMENT = Extent(Offset(57), Offset(66))


class Outcome(StrEnum):
    """Worst last."""

    EQUAL = "equal"
    REFUSED = "refused"
    AFTERWARDS = "afterwards"
    """Refused, but wrong records had been handed out."""
    SILENT = "silent"
    BROKEN = "broken"
    """An error that is none of ours."""


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    said: str = ""


def outcome_of(reader: Reader, segments: Segments, extent: Extent, expected: list[Row]) -> Result:
    got = list[Row]()
    try:
        # one more than there are is enough to tell
        got.extend(islice(reader.rows(segments, extent), len(expected) + 1))
    except TierstateError as error:
        said = f"{type(error).__name__} {error}"
        wrong = not reader.whole and got != expected[: len(got)]
        return Result(Outcome.AFTERWARDS if wrong else Outcome.REFUSED, said)
    except Exception as error:
        return Result(Outcome.BROKEN, f"{type(error).__name__} {error}")
    return Result(Outcome.EQUAL if got == expected else Outcome.SILENT)
