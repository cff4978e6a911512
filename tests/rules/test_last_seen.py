"""The age of records that the broker deleted: it is reported only for records that were seen before."""

from __future__ import annotations

from tierstate.rules.expire import Aged, LastSeen
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import LocalBounds


def bounds(start: int, end: int) -> LocalBounds:
    return LocalBounds(Offset(start), Offset(end), Offset(end), None)


def segment(base: int, end: int, newest: int) -> LocalSegment:
    return LocalSegment(Offset(base), Offset(end), 1000, TimestampMs(newest))


def look(watch: LastSeen, segments: list[LocalSegment], where: LocalBounds, epoch: int = 4) -> Aged | None:
    return watch.look(segments, where, LeaderEpoch(epoch))


def aged(before: int, newest: int) -> Aged:
    return Aged(Offset(before), TimestampMs(newest))


def test_records_that_left_after_a_look_are_as_old_as_the_newest_of_them() -> None:
    watch = LastSeen()
    assert look(watch, [segment(0, 100, 7), segment(100, 100, 9)], bounds(0, 150)) is None
    assert look(watch, [segment(100, 100, 9)], bounds(100, 150)) is None, "some of it is there"
    assert look(watch, [segment(150, 150, 50)], bounds(150, 150)) == aged(150, 9)
    assert look(watch, [segment(150, 150, 60)], bounds(150, 170)) == aged(150, 9), "what came since is not gone"
    assert look(watch, [segment(170, 170, 70)], bounds(170, 170)) == aged(170, 60)


def test_records_written_and_deleted_between_two_looks_are_not_claimed() -> None:
    watch = LastSeen()
    look(watch, [segment(0, 0, 9)], bounds(0, 150))
    assert look(watch, [segment(400, 400, 80)], bounds(400, 400)) == aged(150, 9)


def test_a_look_from_which_something_is_missing_says_nothing_of_its_age() -> None:
    """The broker deleted its first segment after it was asked for its log start."""
    watch = LastSeen()
    look(watch, [segment(100, 100, 9)], bounds(0, 150))
    assert look(watch, [segment(150, 150, 50)], bounds(150, 150)) is None


def test_a_younger_record_that_left_earlier_counts() -> None:
    """Producers choose timestamps freely, so a younger record may precede an older one."""
    watch = LastSeen()
    look(watch, [segment(0, 0, 90)], bounds(0, 10))
    look(watch, [segment(10, 10, 20)], bounds(10, 20))
    assert look(watch, [segment(20, 20, 30)], bounds(20, 20)) == aged(20, 90)


def test_a_look_before_an_election_does_not_count_for_the_log_after_it() -> None:
    """The next leader may have lost those records, and may have others in their place."""
    watch = LastSeen()
    look(watch, [segment(0, 0, 9)], bounds(0, 150), epoch=4)
    assert look(watch, [segment(150, 150, 50)], bounds(150, 150), epoch=6) is None
    look(watch, [segment(150, 150, 60)], bounds(150, 170), epoch=6)
    assert look(watch, [segment(170, 170, 70)], bounds(170, 170), epoch=6) == aged(170, 60)
    assert look(watch, [segment(170, 170, 70)], bounds(170, 170), epoch=7) is None


def test_an_empty_log_says_nothing() -> None:
    watch = LastSeen()
    look(watch, [segment(0, 0, 9)], bounds(0, 0))
    assert look(watch, [], bounds(0, 0)) is None
