"""The facts that are erased, their order, and the conditions of each: tables without a world."""

from __future__ import annotations

import pytest

from tests.rules.erasures import (
    BASE,
    DELETE,
    ELDER,
    KEEP,
    NOTHING,
    OLD,
    PAUSE,
    RESUME,
    TERM,
    all_of,
    build,
    deleted_segment,
    hold,
    judge,
    order,
)
from tests.state.conftest import NOW
from tierstate.rules.decide import standing_order
from tierstate.rules.erase import Erase, in_erasing_order
from tierstate.rules.leases import CLOCK_TOLERANCE_MS
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact, OrderKind, PartitionMissing
from tierstate.state.ids import BrokerId


def test_facts_in_force_stand() -> None:
    assert judge() == NOTHING
    assert judge(build.trim(12, TERM, 50), build.started(13, 1, TERM), build.finished(14, 1, TERM)) == NOTHING


# --- a deleted segment -------------------------------------------------------------------------------------------


def test_a_deleted_segment_goes_in_one_order_and_what_says_that_it_is_deleted_goes_last() -> None:
    decision = judge(*deleted_segment())
    assert isinstance(decision, Erase)
    assert decision.why == f"segment {build.segment_id(1)} is deleted"
    assert all_of(*deleted_segment())[0] == (13, 12, 15, 14, 16, 17, 20, 18, 19)


def test_a_segment_is_deleted_until_its_last_fact_is_erased() -> None:
    """An agent that dies between two tombstones leaves a state of the same meaning; the next term goes on with it."""
    left = [*BASE, *deleted_segment()]
    segment = build.view(*left).segments[build.segment_id(1)]
    for live in in_erasing_order(segment):
        view = build.view(*left)
        assert build.state_of(1, view) == "DELETE_SEGMENT_FINISHED"
        assert not view.contradictions
        following = judge(*left, base=())
        assert isinstance(following, Erase)
        assert following.keys[0] == live.key
        left.remove(live)
    assert left == list(BASE)


@pytest.mark.parametrize(
    ("facts", "erased"),
    [
        ((build.started(12, 1, TERM),), []),
        ((build.started(12, 1, TERM), build.finished(13, 1, TERM)), []),
        ((build.started(12, 1, TERM), build.delete_started(13, 1, TERM)), []),
        ((build.started(12, 1, TERM), build.finished(13, 1, TERM), build.delete_started(14, 1, TERM)), []),
        ((build.delete_started(13, 1, TERM),), []),
        ((build.delete_finished(13, 1, TERM),), [(13,)]),
        ((build.delete_started(12, 1, TERM), build.delete_finished(13, 1, TERM)), [(12, 13)]),
        # a late zombie, after everything else of the segment was erased
        ((build.delete_started(12, 1, OLD), build.delete_finished(13, 1, OLD)), [(12, 13)]),
        # fenced deletes of a segment that stands: they go, it stays
        ((build.started(12, 1, TERM), build.finished(13, 1, TERM), build.delete_started(14, 1, OLD)), [(14,)]),
        ((build.started(12, 1, TERM), build.finished(13, 1, TERM), build.delete_finished(14, 1, OLD)), [(14,)]),
        ((build.started(12, 1, TERM), build.delete_started(13, 1, OLD)), [(13,)]),
        ((build.delete_started(12, 1, TERM), build.delete_finished(13, 1, OLD)), [(13,)]),
        # fenced copies: only after their segment is deleted
        ((build.started(12, 1, OLD),), []),
        ((build.started(12, 1, OLD), build.finished(13, 1, OLD)), []),
        ((build.started(12, 1, OLD), build.finished(13, 1, OLD), build.delete_started(14, 1, TERM)), []),
        (
            (
                build.started(12, 1, OLD),
                build.finished(13, 1, OLD),
                build.delete_started(14, 1, TERM),
                build.delete_finished(15, 1, TERM, 1),
            ),
            [(13, 12, 14, 15)],
        ),
    ],
)
def test_facts_about_a_segment(facts: tuple[LiveFact, ...], erased: list[tuple[int, ...]]) -> None:
    assert all_of(*facts) == erased


def test_deleted_segments_go_one_by_one_and_the_one_that_began_first_goes_first() -> None:
    facts = [build.started(12, 2, TERM), build.started(13, 1, TERM)]
    facts += [build.delete_started(14, 1, TERM, 1), build.delete_finished(15, 1, TERM, 2)]
    facts += [build.delete_started(16, 2, TERM, 3), build.delete_finished(17, 2, TERM, 4)]
    assert all_of(*facts) == [(12, 16, 17), (13, 14, 15)]


# --- log starts and trims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "erased"),
    [
        ((build.log_start(12, TERM, 100, 1),), [(11,)]),
        ((build.log_start(12, TERM, 100, 1), build.log_start(13, TERM, 50, 2)), [(11,), (13,)]),  # the highest stays
        ((build.log_start(12, TERM, 0, 1),), [(11,)]),
        ((build.log_start(12, OLD, 100),), [(12,)]),  # fenced, however high
        ((build.log_start(12, TERM, 100, 1), build.log_start(13, OLD, 200)), [(11,), (13,)]),
        ((build.trim(12, TERM, 100), build.trim(13, TERM, 50, 1)), [(12,)]),  # the newest stays
        ((build.trim(12, OLD, 100),), [(12,)]),
        ((build.trim(12, TERM, 100), build.trim(13, OLD, 200)), [(13,)]),
        ((build.log_start(12, TERM, 100, 1), build.trim(13, OLD, 7)), [(11,), (13,)]),
    ],
)
def test_log_starts_and_trims_go_once_they_are_fenced_or_superseded_and_the_ones_that_count_never(
    facts: tuple[LiveFact, ...], erased: list[tuple[int, ...]]
) -> None:
    assert all_of(*facts) == erased
    before, gone = build.view(*BASE, *facts), {at for each in erased for at in each}
    after = build.view(*(live for live in (*BASE, *facts) if live.position not in gone))
    assert (after.log_start, after.trim_intended) == (before.log_start, before.trim_intended)


def test_the_log_start_of_a_lower_term_stays_as_long_as_it_is_the_highest() -> None:
    facts = (build.leader(0, 1), build.log_start(1, OLD, 500), build.trim(2, OLD, 300))
    assert all_of(*facts) == [(11,), (0,)]


# --- orders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "erased"),
    [
        ([PAUSE], []),
        ([KEEP], []),
        ([DELETE], []),
        ([RESUME], [20]),
        ([PAUSE, RESUME], [20, 21]),
        ([PAUSE, PAUSE], [20]),
        ([RESUME, PAUSE], [20]),
        ([PAUSE, RESUME, KEEP], [20, 21]),
        ([DELETE, PAUSE, RESUME], [20, 21, 22]),
    ],
)
def test_an_older_order_goes_before_the_one_that_supersedes_it(kinds: list[OrderKind], erased: list[int]) -> None:
    """Thus no order that was taken back is ever in force."""
    orders = [order(20 + at, at, kind) for at, kind in enumerate(kinds)]
    assert all_of(*orders) == [(at,) for at in erased]
    order_in_force = standing_order(build.view(*BASE, *orders))
    for done in range(len(erased)):
        assert standing_order(build.view(*BASE, *orders[done + 1 :])) == order_in_force


@pytest.mark.parametrize(
    ("log_start", "local_start", "erased"),
    [(100, 100, True), (500, 500, True), (99, 100, False), (100, 99, False), (500, 0, False), (0, 500, False)],
)
def test_a_delete_records_order_goes_once_both_tiers_have_reached_it(
    log_start: int, local_start: int, erased: bool
) -> None:
    base = (build.leader(10, 2), build.log_start(11, TERM, log_start))
    assert all_of(order(20, 1, before=100), base=base, local_start=local_start) == ([(20,)] if erased else [])


def test_delete_records_orders_go_oldest_first_and_wait_for_an_older_one() -> None:
    base = (build.leader(10, 2), build.log_start(11, TERM, 100))
    both = (order(20, 1, before=100), order(21, 2, before=50))
    assert all_of(*both, base=base, local_start=100) == [(20,), (21,)]
    assert all_of(*both, base=base, local_start=60) == []


def test_orders_of_one_kind_do_not_wait_for_the_other() -> None:
    base = (build.leader(10, 2), build.log_start(11, TERM, 100))
    orders = (order(20, 1, before=100), order(21, 2, PAUSE), order(22, 3, before=900), order(23, 4, RESUME))
    assert all_of(*orders, base=base, local_start=100) == [(21,), (23,), (20,)]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("end", "deletes", "goes"),
    [(99, 0, False), (99, 1, False), (99, 2, True), (100, 0, True), (149, 0, True)],
)
def test_a_forced_order_stands_until_no_object_below_it_is_left(
    end: int, deletes: int, goes: bool, force: bool
) -> None:
    """The order overrides the leases. ``deletes`` is the number of facts about its deletion."""
    base = (build.leader(10, 2), build.log_start(11, TERM, 100))
    segment = (build.started(12, 1, TERM, 0, end), build.finished(13, 1, TERM, 0, end))
    delete_facts = (build.delete_started(14, 1, TERM), build.delete_finished(15, 1, TERM, 1))[:deletes]
    erased = all_of(*segment, *delete_facts, order(20, 1, before=100, force=force), base=base, local_start=100)
    assert ((20,) in erased) == (goes or not force)


# --- leases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "goes"), [(-1, False), (0, False), (CLOCK_TOLERANCE_MS, False), (CLOCK_TOLERANCE_MS + 1, True)]
)
def test_a_lease_goes_when_it_is_over_by_the_slowest_clock(after: int, goes: bool) -> None:
    lease = build.lease(12, 1)
    assert judge(lease, now=NOW + after) == (Erase((lease.key,), "expired lease") if goes else NOTHING)


# --- what stops it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doubt", "reason"),
    [
        ((build.unknown(30, "log-start/1/0/9"),), "degraded: "),
        ((hold(30),), "held: two values"),
        ((build.finished(30, 8, TERM),), "contradiction: "),
    ],
)
def test_nothing_is_erased_while_a_person_must_resolve_a_doubt(doubt: tuple[LiveFact, ...], reason: str) -> None:
    facts = (ELDER, *deleted_segment(), build.trim(21, OLD, 5), order(22, 1, RESUME), build.lease(23, 1))
    assert isinstance(judge(*facts, now=NOW + 10**7), Erase)
    decision = judge(*facts, *doubt, now=NOW + 10**7)
    assert isinstance(decision, str)
    assert decision.startswith(reason)


def test_nothing_is_erased_without_a_known_lineage_and_a_log_start() -> None:
    old = build.segment(1, TERM, 0, 99, Lineage.of((1, 0)))
    copy = (build.started(12, 1, TERM), build.finished(13, 1, TERM, 0, 99, old.leader_epochs))
    lost = (build.leader(10, 2, lineage=Lineage.of((2, 100))), build.log_start(11, TERM, 0))
    decision = judge(*copy, build.trim(14, OLD, 5), base=lost)
    assert isinstance(decision, str)
    assert decision.startswith("lineage unknown")
    assert judge(build.trim(14, OLD, 5), base=BASE[:1]) == "no term has written a log start yet"


def test_holds_and_missing_partitions_are_for_people_to_erase() -> None:
    missing = build.live(12, PartitionMissing(build.partition, build.fact_id(1), "cluster", BrokerId(2), NOW))
    assert judge(missing) == NOTHING


# --- the archive -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("archived_to", "goes"), [(None, True), (16, True), (15, False), (14, False), (0, False), (10**6, True)]
)
def test_nothing_goes_that_the_archive_does_not_hold(archived_to: int | None, goes: bool) -> None:
    """A segment goes whole or not at all: its last fact is at 15."""
    copy = (build.started(12, 1, TERM), build.finished(13, 1, TERM))
    decision = judge(
        *copy, build.delete_started(14, 1, TERM, 1), build.delete_finished(15, 1, TERM, 2), archived_to=archived_to
    )
    assert isinstance(decision, Erase) if goes else decision == "not archived yet"


@pytest.mark.parametrize(
    "late",
    [
        build.trim(30, OLD, 5),
        build.log_start(30, OLD, 5),
        build.delete_started(30, 9, OLD),
        build.lease(30, 1),
        order(30, 1, RESUME),
        build.leader(30, 1, number=5),
    ],
    ids=["trim", "log start", "delete", "lease", "order", "leader"],
)
def test_every_kind_waits_for_the_archive_and_holds_up_no_other(late: LiveFact) -> None:
    now = NOW + 10**7
    assert judge(late, archived_to=30, now=now) == "not archived yet"
    assert judge(late, archived_to=31, now=now) != "not archived yet"
    archived = build.trim(12, OLD, 5, 7)
    assert judge(late, archived, archived_to=30, now=now) == Erase((archived.key,), "fenced or superseded")


def test_fenced_deletes_do_not_wait_with_the_segment_they_are_about() -> None:
    decision = judge(*deleted_segment(), archived_to=20)
    assert isinstance(decision, Erase)
    assert decision.why == "fenced delete"
