"""Records that left the broker before they were copied: the log start passes them when they would have expired."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.expiring import AGES, BOUNDS, FOREVER, keep, moves, view_of
from tests.state.conftest import NOW
from tierstate.rules.expire import AdvanceLogStart, Aged
from tierstate.rules.reasons import Why
from tierstate.state.offsets import Offset, TimestampMs

GONE = Aged(Offset(300), TimestampMs(NOW - 5000))
"""There are two remote segments, 0..199; 200..299 left the broker uncopied, and was 5 s old at most."""


def test_lost_uncopied_offsets_are_passed_once_they_would_have_expired() -> None:
    view = view_of(log_start=200, segments=AGES[:2])
    sentence = "retention-time of offsets 200..299, which left the broker before they were copied"
    assert moves(view, keep(ms=4999), gone=GONE) == AdvanceLogStart(Offset(300), sentence)
    assert isinstance(moves(view, keep(ms=5000), gone=GONE), Why), "it would still be there"
    for forever in (FOREVER, keep(size=0)):
        assert isinstance(moves(view, forever, gone=GONE), Why), "no time is too long"
    assert isinstance(moves(view, keep(ms=4999)), Why), "nobody saw how old it was"


def test_nothing_readable_is_passed_with_what_left_the_broker_uncopied() -> None:
    old = replace(GONE, newest=TimestampMs(NOW - 9500))
    assert moves(view_of(segments=AGES[:2]), keep(ms=8500), gone=old) == AdvanceLogStart(
        Offset(100), "retention-time"
    ), "its own age, its own fact"
    kept = view_of(log_start=100, segments=AGES[:2])
    assert isinstance(moves(kept, keep(ms=8500), gone=old), Why), "100..199 is not that old"


def test_only_offsets_that_the_broker_lost_are_passed() -> None:
    view = view_of(log_start=200, segments=AGES[:2])
    for start in (300, 400):
        bounds = replace(BOUNDS, local_start=Offset(start))
        assert isinstance(moves(view, keep(ms=4999), bounds, GONE), AdvanceLogStart)
    back = replace(BOUNDS, local_start=Offset(250))
    assert isinstance(moves(view, keep(ms=4999), back, GONE), Why), "a new leader still has some of it"
