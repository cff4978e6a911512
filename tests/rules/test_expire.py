"""Which parts of the remote tier are deleted, one condition at a time: each alone keeps them, and is the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.expiring import (
    BOUNDS,
    FOREVER,
    GRACE,
    LINEAGE,
    TERM,
    build,
    delete_started,
    doubtful,
    finished,
    keep,
    moved,
    moves,
    order,
    view_of,
)
from tests.state.conftest import NOW
from tierstate.rules.expire import (
    AdvanceLogStart,
    RemoveObjects,
    StartDelete,
    may_go,
    next_delete,
    next_removal,
)
from tierstate.rules.reasons import Reason, Why
from tierstate.rules.trim import doubt_of
from tierstate.state.epochs import Lineage
from tierstate.state.facts import (
    DeleteReason,
    LiveFact,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    SegmentCopyFinished,
)
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.retention import TopicRetention

# --- the log start -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "found"),
    [
        (keep(ms=8999), AdvanceLogStart(Offset(100), "retention-time")),
        (keep(ms=6999), AdvanceLogStart(Offset(300), "retention-time")),
        (keep(size=3500), AdvanceLogStart(Offset(100), "retention-size")),
        (keep(size=0), AdvanceLogStart(Offset(400), "retention-size")),
        (keep(ms=8999, size=0), AdvanceLogStart(Offset(100), "retention-time")),
        (keep(ms=9000, size=3500), AdvanceLogStart(Offset(100), "retention-size")),
    ],
)
def test_the_log_start_moves_to_the_end_of_what_expires(retention: TopicRetention, found: AdvanceLogStart) -> None:
    assert moves(view_of(), retention) == found


def test_time_and_size_move_the_log_start_one_after_the_other() -> None:
    """Bytes that expire by time count towards the size."""
    assert moves(view_of(log_start=100), keep(ms=8999, size=2500)) == AdvanceLogStart(Offset(200), "retention-size")
    assert isinstance(moves(view_of(log_start=200), keep(ms=8999, size=2500)), Why)


@pytest.mark.parametrize(
    ("retention", "reason"),
    [
        (FOREVER, "retention keeps the oldest segment, 0..99: without limits"),
        (keep(ms=9000), "retention keeps the oldest segment, 0..99: 9 s old of 9 s"),
        (keep(size=4000), "retention keeps the oldest segment, 0..99: 4,500 bytes in both tiers of 4,000"),
        (
            keep(ms=9000, size=9000),
            "retention keeps the oldest segment, 0..99: 9 s old of 9 s, 4,500 bytes in both tiers of 9,000",
        ),
    ],
)
def test_the_reason_for_keeping_everything_has_numbers(retention: TopicRetention, reason: str) -> None:
    assert moves(view_of(), retention) == Why(Reason.RETENTION_KEEPS, reason)


def test_an_empty_remote_tier_expires_nothing() -> None:
    reason = Why(Reason.NOTHING_REMOTE, "nothing is in the remote tier from the log start 0 on")
    assert moves(view_of(segments=()), keep(ms=0, size=0)) == reason


def test_an_uncopied_offset_keeps_the_log_start() -> None:
    facts = [build.leader(0, 1, lineage=LINEAGE), build.log_start(1, TERM, 0)]
    facts += [build.started(2, 3, TERM, 300, 399), finished(3, 3, 300, 399, 9000)]
    bounds = replace(BOUNDS, local_start=Offset(0))
    sentence = "offset 0 is not copied yet: nothing goes before it is known"
    assert moves(build.view(*facts), keep(ms=0), bounds) == Why(Reason.NOT_COPIED, sentence)


def test_the_brokers_log_start_never_moves_the_tiers() -> None:
    bounds = replace(BOUNDS, local_start=Offset(400))
    assert isinstance(moves(view_of(), keep(ms=9000), bounds), Why)


def test_lineage_never_condemns() -> None:
    """An unclean election disowned everything: nothing of it is readable, and nothing of it is deleted."""
    leader = build.leader(90, 5, lineage=Lineage.of((5, 0)))
    view = view_of(leader)
    assert view.coverage.owned == ()
    assert isinstance(moves(view, keep(ms=0, size=0)), Why)
    assert isinstance(next_delete(view), Why)


# --- orders ----------------------------------------------------------------------------------------------------------


def test_an_order_moves_the_log_start_to_its_exact_offset_and_comes_first() -> None:
    view = view_of(order(50, OrderKind.DELETE_RECORDS, 142))
    decision = AdvanceLogStart(Offset(142), f"operator-order {build.fact_id(7)}")
    assert moves(view, keep(ms=0)) == decision


def test_the_highest_delete_records_order_counts() -> None:
    orders = [order(50 + at, OrderKind.DELETE_RECORDS, before, number=at) for at, before in enumerate((50, 142, 99))]
    decision = AdvanceLogStart(Offset(142), f"operator-order {build.fact_id(1)}")
    assert moves(view_of(*orders)) == decision


def test_an_order_that_is_already_carried_out_moves_nothing() -> None:
    view = view_of(order(50, OrderKind.DELETE_RECORDS, 142), log_start=142)
    assert isinstance(moves(view), Why)


def test_an_order_above_the_high_watermark_waits_and_holds_up_nothing() -> None:
    beyond = order(50, OrderKind.DELETE_RECORDS, 451)
    why = "retention keeps the oldest segment, 0..99: without limits"
    sentence = f"order {build.fact_id(7)} waits: 451 is above the high watermark 450; {why}"
    assert moves(view_of(beyond)) == Why(Reason.ORDER_WAITS, sentence)
    assert moves(view_of(beyond), keep(ms=8999)) == AdvanceLogStart(Offset(100), "retention-time")
    both = view_of(beyond, order(51, OrderKind.DELETE_RECORDS, 450, number=8))
    assert moves(both) == AdvanceLogStart(Offset(450), f"operator-order {build.fact_id(8)}")


def test_giving_up_the_remote_tier_moves_the_log_start_to_the_brokers() -> None:
    view = view_of(order(50, OrderKind.DISABLE_DELETE))
    assert moves(view) == AdvanceLogStart(Offset(300), f"operator-order {build.fact_id(7)}")
    assert isinstance(moves(view, bounds=replace(BOUNDS, local_start=Offset(0))), Why)


@pytest.mark.parametrize("newer", [OrderKind.RESUME, OrderKind.PAUSE, OrderKind.DISABLE_KEEP])
def test_only_the_newest_of_pause_resume_and_disable_counts(newer: OrderKind) -> None:
    view = view_of(order(50, OrderKind.DISABLE_DELETE), order(51, newer, number=8))
    assert isinstance(moves(view), Why)


def test_retention_goes_on_when_copying_is_disabled() -> None:
    view = view_of(order(50, OrderKind.DISABLE_KEEP))
    assert moves(view, keep(ms=8999)) == AdvanceLogStart(Offset(100), "retention-time")


# --- doubt -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("doubt", ["held", "degraded", "contradiction", "lineage unknown", "no term has written"])
def test_nothing_goes_while_anything_is_doubtful(doubt: str) -> None:
    sound, view = doubtful()["none"], doubtful()[doubt]
    assert doubt_of(sound) is None
    why = doubt_of(view)
    assert why is not None
    assert why.text.startswith(doubt)
    reason = why
    assert isinstance(moves(sound, keep(size=0)), AdvanceLogStart)
    assert isinstance(next_delete(sound), StartDelete)
    assert isinstance(next_removal(sound, NOW, GRACE), RemoveObjects)
    assert moves(view, keep(ms=0, size=0)) == reason
    assert next_delete(view) == reason
    assert next_removal(view, NOW, GRACE) == reason


def test_objects_stay_until_the_archive_has_that_they_are_to_go() -> None:
    view = doubtful()["none"]
    (condemned,) = [each for each in view.unsettled if each.deleting is not None]
    assert condemned.deleting is not None
    at = condemned.deleting.position
    waiting = next_removal(view, NOW, GRACE, archived_to=at)
    assert isinstance(waiting, Why)
    assert waiting.kind is Reason.NOT_ARCHIVED
    assert isinstance(next_removal(view, NOW, GRACE, archived_to=Position(at + 1)), RemoveObjects)


# --- delete-started --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "first"), [(0, None), (99, None), (100, 0), (150, 0), (400, 0)])
def test_the_oldest_segment_that_ends_below_the_log_start_goes(offset: int, first: int | None) -> None:
    decision = next_delete(view_of(log_start=offset))
    if first is None:
        assert decision == Why(Reason.RETENTION_KEEPS, f"no segment ends below the log start {offset}")
    else:
        assert isinstance(decision, StartDelete)
        assert decision.segment.segment_id == build.segment_id(first)


def test_a_segment_inside_a_longer_one_goes_when_it_ends_below_the_log_start() -> None:
    """It owns no offsets, but its objects exist."""
    inner = (build.started(50, 9, TERM, 210, 250), finished(51, 9, 210, 250, 1))
    gone = tuple(delete_started(60 + number, number) for number in (0, 1))
    assert isinstance(next_delete(view_of(*inner, *gone, log_start=250)), Why)
    decision = next_delete(view_of(*inner, *gone, log_start=251))
    assert isinstance(decision, StartDelete)
    assert decision.segment.segment_id == build.segment_id(9)


def out_of_lineage(age: int) -> tuple[LiveFact, ...]:
    """Return the facts of a branch that left at 40; its agents expired it up to 150 there."""
    segment = build.segment(9, TERM, 50, 149, Lineage.of((7, 50)))
    segment = replace(segment, max_timestamp=TimestampMs(NOW - age), copied_at=NOW)
    return (build.started(50, 9, TERM, 50, 149), build.live(51, SegmentCopyFinished(segment)), delete_started(60, 0))


def test_a_segment_out_of_lineage_stays_whatever_is_expired_on_another_branch() -> None:
    """Its branch may lead again, and that log is trimmed because of this copy."""
    assert isinstance(next_delete(view_of(*out_of_lineage(1), log_start=150), keep(ms=10), NOW), Why)
    theirs = build.log_start(61, TERM, 150, 9, lineage=Lineage.of((0, 0), (7, 40)))
    decision = next_delete(view_of(*out_of_lineage(1), theirs, log_start=0))
    assert isinstance(decision, StartDelete)
    assert decision.segment.segment_id == build.segment_id(9)


def test_a_segment_out_of_lineage_goes_below_the_log_start_when_no_branch_would_keep_it() -> None:
    """Otherwise the segments of a lost branch would stay for ever."""
    for log_start, age, limit, goes in ((150, 11, 10, True), (150, 10, 10, False), (149, 11, 10, False)):
        decision = next_delete(view_of(*out_of_lineage(age), log_start=log_start), keep(ms=limit), NOW)
        assert isinstance(decision, StartDelete) == goes
    assert isinstance(next_delete(view_of(*out_of_lineage(10**9), log_start=150), keep(size=1), NOW), Why)
    given_up = order(62, OrderKind.DISABLE_DELETE)
    assert isinstance(next_delete(view_of(*out_of_lineage(1), given_up, log_start=150), FOREVER, NOW), StartDelete)


def test_an_expired_segment_is_looked_at_again_before_it_is_condemned() -> None:
    (segment,) = (s for s in view_of(*out_of_lineage(11), log_start=150).readable if s.offsets.start == 50)
    for log_start, reason, goes in (
        (150, DeleteReason.RETENTION_TIME, True),
        (149, DeleteReason.RETENTION_TIME, False),
        (150, DeleteReason.LOG_START, False),
    ):
        assert may_go(view_of(*out_of_lineage(11), log_start=log_start), segment, reason) == goes


def test_an_order_is_about_the_records_that_were_there_when_it_was_given() -> None:
    """The records 300..399 were replaced since."""
    ordered = order(50, OrderKind.DELETE_RECORDS, 400)
    ruling = build.leader(40, 2, lineage=Lineage.of((0, 0), (2, 300)))
    view = view_of(ordered, ruling)
    assert moves(view) == AdvanceLogStart(Offset(300), f"operator-order {build.fact_id(7)}")
    done = view_of(ordered, ruling, build.log_start(51, build.term(2, 40), 300))
    sentence = f"order {build.fact_id(7)}: another election lost the records it was given for from 300 on"
    why = "nothing is in the remote tier from the log start 300 on"
    assert moves(done) == Why(Reason.ORDER_LOST, f"{sentence}: what is there now stays; {why}")


def test_an_order_that_does_not_say_for_which_records_is_not_carried_out() -> None:
    kind = OrderKind.DELETE_RECORDS
    version_1 = OperatorOrder(build.partition, build.fact_id(7), kind, Offset(100), False, "ops", NOW)
    decision = moves(view_of(build.live(50, version_1)))
    assert isinstance(decision, Why)
    assert (decision.kind, "give it again" in decision.text) == (Reason.ORDER_LOST, True)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([(100, "retention-time")], DeleteReason.RETENTION_TIME),
        ([(100, "retention-size")], DeleteReason.RETENTION_SIZE),
        ([(100, "operator-order AAAA")], DeleteReason.OPERATOR_ORDER),
        ([(100, "first term")], DeleteReason.LOG_START),
        ([(100, "partition-deleted")], DeleteReason.LOG_START),
        ([(99, "retention-size"), (100, "retention-time"), (200, "operator-order AAAA")], DeleteReason.RETENTION_TIME),
        ([(200, "operator-order AAAA"), (150, "retention-time")], DeleteReason.RETENTION_TIME),
    ],
)
def test_the_reason_is_that_of_the_log_start_which_passed_the_segment(
    reasons: list[tuple[int, str]], expected: DeleteReason
) -> None:
    decision = next_delete(view_of(*(moved(50 + at, offset, why, 5 + at) for at, (offset, why) in enumerate(reasons))))
    assert isinstance(decision, StartDelete)
    assert decision.reason is expected


def test_a_fenced_log_start_condemns_nothing_and_is_no_reason() -> None:
    old = build.term(0, 40)
    zombie = build.live(50, LogStartAdvanced(build.partition, Offset(400), old, 1, "retention-size", NOW))
    view = view_of(build.leader(40, 0, number=1040), zombie)
    assert zombie.key in view.fenced
    assert isinstance(next_delete(view), Why)
    decision = next_delete(view_of(build.leader(40, 0, number=1040), zombie, moved(51, 400, "retention-time")))
    assert isinstance(decision, StartDelete)
    assert decision.reason is DeleteReason.RETENTION_TIME
