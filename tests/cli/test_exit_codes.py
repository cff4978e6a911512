from __future__ import annotations

import pytest

from tierstate.cli.exit_codes import BUG, OF_ERROR, exit_code
from tierstate.state import errors
from tierstate.state.errors import TierstateError


def everything_below(kind: type[TierstateError]) -> list[type[TierstateError]]:
    return [subclass for below in kind.__subclasses__() for subclass in (below, *everything_below(below))]


def test_every_error_class_has_a_code_of_the_commands_page() -> None:
    ours = [kind for kind in everything_below(TierstateError) if kind.__module__ == errors.__name__]
    assert len(ours) > 20
    codes = {kind.__name__: exit_code(kind.__new__(kind)) for kind in ours}
    assert [name for name, code in codes.items() if code not in (1, 2, 3, 4, 5)] == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Difference", 1),
        ("InvalidSettings", 2),
        ("MissingExtra", 2),
        ("UnknownTopic", 2),
        ("ViewBehind", 3),
        ("StorageUnavailable", 3),
        ("UnknownOutcome", 3),
        ("CorruptData", 4),
        ("LogGap", 4),
        ("IllegalTransition", 4),
        ("OffsetOutOfRange", 5),
        ("BatchTooLarge", 5),
        ("AccessDenied", 5),
        ("Fenced", 5),
        ("SegmentExpired", 5),
        ("PlannedRangeLost", 5),
    ],
)
def test_the_code_follows_from_what_the_caller_must_do(name: str, code: int) -> None:
    kind = getattr(errors, name)
    assert exit_code(kind.__new__(kind)) == code


def test_the_table_names_no_root() -> None:
    assert TierstateError not in OF_ERROR


def test_a_foreign_exception_is_a_bug_and_an_interrupt_is_an_interrupt() -> None:
    assert exit_code(ValueError("x")) == BUG == 70
    assert exit_code(KeyboardInterrupt()) == 130
