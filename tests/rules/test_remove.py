"""When the objects of a deleted segment are removed: after the grace and after all leases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.expiring import (
    GRACE,
    build,
    delete_started,
    lease,
    order,
    view_of,
)
from tests.state.conftest import NOW
from tierstate.rules.expire import (
    LANDING_MS,
    future_segments,
    next_removal,
)
from tierstate.rules.leases import expired_leases
from tierstate.rules.reasons import Why
from tierstate.state.epochs import Lineage
from tierstate.state.facts import (
    DeleteReason,
    LiveFact,
    OrderKind,
)
from tierstate.state.offsets import TimestampMs


def removal(*extra: LiveFact, put_off: tuple[int, ...] = ()) -> int | str:
    """Return the number of the segment whose objects are deleted, or why none are."""
    off = {build.segment_id(number) for number in put_off}
    decision = next_removal(view_of(*extra), NOW, GRACE, off)
    if isinstance(decision, Why):
        return decision.text
    return next(number for number in range(10) if build.segment_id(number) == decision.segment.segment_id)


def test_objects_go_after_the_grace_for_readers() -> None:
    assert removal() == "no segment waits for its objects to be deleted"
    assert removal(delete_started(50, 1, age=GRACE)) == 1
    text = f"1 condemned segment keeps its objects; segment {build.segment_id(1)}: the grace for readers ends in 1 s"
    assert removal(delete_started(50, 1, age=GRACE - 1)) == text


def test_objects_of_a_failed_attempt_wait_for_writes_that_may_still_land() -> None:
    failed = DeleteReason.FAILED_ATTEMPT
    assert "late writes ends in 1 s" in str(removal(delete_started(50, 1, age=LANDING_MS - 1, reason=failed)))
    assert removal(delete_started(50, 1, age=LANDING_MS, reason=failed)) == 1


def test_the_segment_that_was_condemned_first_goes_first() -> None:
    assert removal(delete_started(50, 2), delete_started(51, 0)) == 2


def test_a_segment_that_something_keeps_holds_up_no_other() -> None:
    assert removal(lease(49, 100, 199), delete_started(50, 1), delete_started(51, 2)) == 2
    assert removal(delete_started(50, 1), delete_started(51, 2), put_off=(1,)) == 2
    assert "tried again later" in str(removal(delete_started(50, 1), put_off=(1,)))


@pytest.mark.parametrize(
    ("start", "end", "keeps"), [(0, 99, False), (0, 100, True), (150, 160, True), (199, 300, True), (200, 299, False)]
)
def test_a_lease_keeps_the_objects_of_the_segments_it_touches(start: int, end: int, keeps: bool) -> None:
    decision = removal(lease(49, start, end), delete_started(50, 1))
    assert ("of spark is on" in str(decision)) == keeps
    assert keeps or decision == 1


def test_a_lease_taken_after_the_segment_was_condemned_keeps_nothing() -> None:
    assert removal(delete_started(50, 1), lease(51, 100, 199)) == 1


def test_a_lease_that_its_holder_took_to_read_on_keeps_what_the_first_one_did() -> None:
    first, second = lease(49, 100, 199, left=0), lease(51, 100, 199, number=41)
    assert "of spark" in str(removal(first, delete_started(50, 1), second))
    assert expired_leases(view_of(first, second), NOW) == []


@pytest.mark.parametrize("other", [{"holder": "another"}, {"start": 0, "end": 99}])
def test_another_holders_lease_and_one_on_other_offsets_go_on_from_none(other: dict[str, Any]) -> None:
    next_lease: dict[str, Any] = {"start": 100, "end": 199, **other}
    first, second = lease(49, 100, 199, left=0), lease(51, number=41, **next_lease)
    assert removal(first, delete_started(50, 1), second) == 1
    assert expired_leases(view_of(first, second), NOW) == [first.key]


def test_a_lease_counts_until_no_clock_can_take_it_for_live() -> None:
    live, over = lease(49, 100, 199, left=1), lease(49, 100, 199, left=0)
    assert "of spark" in str(removal(live, delete_started(50, 1)))
    assert removal(over, delete_started(50, 1)) == 1
    assert expired_leases(view_of(live), NOW) == []
    assert expired_leases(view_of(over), NOW) == [over.key]


@pytest.mark.parametrize(("before", "force", "goes"), [(200, True, True), (199, True, False), (200, False, False)])
def test_a_forced_order_overrides_leases_of_what_lies_below_it(before: int, force: bool, goes: bool) -> None:
    forced = order(48, OrderKind.DELETE_RECORDS, before, force=force)
    decision = removal(forced, lease(49, 100, 199), delete_started(50, 1))
    assert (decision == 1) == goes


def test_a_forced_order_does_not_shorten_the_grace() -> None:
    forced = order(48, OrderKind.DELETE_RECORDS, 400, force=True)
    assert "grace" in str(removal(forced, delete_started(50, 1, age=GRACE - 1)))


def test_the_term_in_force_removes_what_an_earlier_one_condemned() -> None:
    later = build.leader(90, 2, lineage=Lineage.of((0, 0), (2, 450)))
    assert removal(delete_started(50, 1), later) == 1


def test_segments_that_a_fenced_term_condemns_keep_their_objects() -> None:
    later = build.leader(49, 2, lineage=Lineage.of((0, 0), (2, 450)))
    assert removal(later, delete_started(50, 1)) == "no segment waits for its objects to be deleted"


def test_segments_with_records_of_the_future_are_counted() -> None:
    assert future_segments(view_of(), TimestampMs(NOW - 8500)) == 3
    assert future_segments(view_of(), NOW) == 0
