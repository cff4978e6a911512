"""Fencing: each clause of the rule, its exact border, and the effects that a fenced fact may not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact
from tierstate.state.segment import SegmentState

if TYPE_CHECKING:
    from tests.state.conftest import Build


def fenced(build: Build, fact: LiveFact, *leaders: LiveFact) -> bool:
    return fact.key in build.view(fact, *leaders).fenced


def test_a_fact_of_the_only_term_is_accepted(build: Build) -> None:
    assert not fenced(build, build.log_start(1, build.term(1, 0), 5), build.leader(0, 1))


def test_a_higher_epoch_fences_what_lands_after_it(build: Build) -> None:
    assert fenced(build, build.log_start(3, build.term(1, 0), 5), build.leader(0, 1), build.leader(2, 2))


def test_a_higher_term_does_not_fence_what_landed_before_it(build: Build) -> None:
    assert not fenced(build, build.log_start(1, build.term(1, 0), 5), build.leader(0, 1), build.leader(2, 2))


def test_the_later_of_two_terms_of_one_epoch_fences_the_earlier(build: Build) -> None:
    leaders = [build.leader(0, 1), build.leader(2, 1)]
    assert fenced(build, build.log_start(3, build.term(1, 0), 5), *leaders)
    assert not fenced(build, build.log_start(3, build.term(1, 2), 5), *leaders)


def test_a_late_leader_of_a_lower_epoch_fences_nothing(build: Build) -> None:
    leaders = [build.leader(0, 2), build.leader(2, 1)]
    assert not fenced(build, build.log_start(3, build.term(2, 0), 5), *leaders)
    assert fenced(build, build.log_start(3, build.term(1, 2), 5), *leaders)


def test_the_higher_term_fences_even_when_a_lower_one_stands_between(build: Build) -> None:
    leaders = [build.leader(0, 1), build.leader(2, 9), build.leader(4, 3)]
    assert fenced(build, build.log_start(5, build.term(4, 1), 5), *leaders)


def test_a_term_that_begins_at_or_after_its_own_fact_is_fenced(build: Build) -> None:
    assert fenced(build, build.log_start(5, build.term(1, 5), 5))
    assert fenced(build, build.log_start(5, build.term(1, 6), 5))
    assert not fenced(build, build.log_start(5, build.term(1, 4), 5))


def test_a_fact_that_names_another_leaders_position_is_fenced(build: Build) -> None:
    leader = build.leader(0, 1, number=1)
    assert fenced(build, build.log_start(3, build.term(1, 0, 2), 5), leader)
    assert fenced(build, build.log_start(3, build.term(2, 0, 1), 5), leader)
    assert not fenced(build, build.log_start(3, build.term(1, 0, 1), 5), leader)


def test_erasing_its_own_leader_fences_no_fact(build: Build) -> None:
    assert not fenced(build, build.log_start(3, build.term(2, 1), 5), build.leader(0, 1))


def test_a_leader_whose_value_cannot_be_read_still_fences_and_reigns(build: Build) -> None:
    newer = build.unknown(4, f"leader/7/{build.fact_id(9)}")
    facts = [build.leader(0, 1), build.started(1, 1, build.term(1, 0)), build.log_start(5, build.term(1, 0), 50)]
    view = build.view(*facts, newer)
    assert facts[2].key in view.fenced
    assert view.term == build.term(7, 4, 9)
    assert view.leader == facts[0].fact
    assert view.degraded
    assert build.state_of(1, view) == SegmentState.ABANDONED


@pytest.mark.parametrize("tail", ["leader/7", "leader/x/y", "nothing", "", "leader/7/AAAAAAAAAAAAAAAAAAAAAA/1"])
def test_an_unreadable_value_under_an_odd_key_degrades_and_fences_nothing(tail: str, build: Build) -> None:
    view = build.view(build.leader(0, 1), build.log_start(5, build.term(1, 0), 50), build.unknown(4, tail))
    assert (view.fenced, view.term) == (frozenset(), build.term(1, 0))
    assert len(view.degraded) == 1


def test_the_highest_term_is_in_force_wherever_it_stands(build: Build) -> None:
    lineage = Lineage.of((0, 0), (9, 5))
    view = build.view(build.leader(0, 1), build.leader(2, 9, lineage=lineage), build.leader(4, 3))
    assert view.term == build.term(9, 2)
    assert view.lineage == lineage
    assert build.view(build.leader(0, 4), build.leader(3, 4)).term == build.term(4, 3)


def test_fenced_log_starts_trims_and_deletions_have_no_effect(build: Build) -> None:
    old, term = build.term(1, 0), build.term(2, 2)
    leaders = [build.leader(0, 1), build.leader(2, 2)]
    good = [build.log_start(3, term, 5), build.trim(4, term, 7, 1)]
    zombie = [build.log_start(5, old, 50), build.trim(6, old, 70, 1), build.deleted(7, old)]
    view = build.view(*leaders, *good, *zombie)
    assert (view.log_start, view.trim_intended, view.deleted) == (5, 7, None)
    assert view.fenced == {fact.key for fact in zombie}


def test_log_start_is_the_highest_and_the_trim_the_newest_accepted_one(build: Build) -> None:
    term = build.term(1, 0)
    starts = [build.log_start(1, term, 9, 1), build.log_start(2, term, 4, 2)]
    trims = [build.trim(3, term, 9, 3), build.trim(4, term, 4, 4)]
    view = build.view(build.leader(0, 1), *starts, *trims)
    assert (view.log_start, view.trim_intended) == (9, 4)


def test_facts_by_no_term_are_never_fenced(build: Build) -> None:
    view = build.view(build.leader(0, 9), build.order(1, 1), build.lease(2, 2))
    assert view.fenced == frozenset()
    assert len(view.orders) == len(view.leases) == 1


def test_an_accepted_partition_deletion_is_seen(build: Build) -> None:
    term = build.term(2**31 - 1, 3)
    deleted = build.deleted(4, term)
    assert build.view(build.leader(0, 1), build.leader(3, 2**31 - 1), deleted).deleted == deleted.fact


def test_an_empty_live_set_has_no_segments_and_no_leader(build: Build) -> None:
    view = build.view()
    assert (view.term, view.leader, view.topic, view.log_start, view.readable) == (None, None, None, None, ())
    assert not view.lineage_unknown
    assert view.copied_to == -1
