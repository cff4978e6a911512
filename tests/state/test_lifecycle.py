"""The life of a segment, walked over every combination of its facts, and the illegal combinations."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from tierstate.state.facts import LiveFact
from tierstate.state.segment import SegmentState

if TYPE_CHECKING:
    from tests.state.conftest import Build

GONE, GOING = "DELETE_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"
READABLE, COPYING, ABANDONED = "COPY_SEGMENT_FINISHED", "COPY_SEGMENT_STARTED", "ABANDONED"

# copy-started, copy-finished: state without an accepted delete. "lower": accepted, of a term that is not the highest.
COPIES = {
    ("none", "none"): None,
    ("none", "accepted"): ABANDONED,  # landed again after its segment was deleted: never a ghost
    ("none", "fenced"): ABANDONED,
    ("accepted", "none"): COPYING,
    ("accepted", "accepted"): READABLE,
    ("accepted", "fenced"): ABANDONED,
    ("fenced", "none"): ABANDONED,
    ("fenced", "accepted"): ABANDONED,  # of two terms: not one copy
    ("fenced", "fenced"): ABANDONED,
    ("lower", "none"): ABANDONED,
    ("lower", "accepted"): READABLE,
    ("lower", "fenced"): ABANDONED,
}
# delete-started, delete-finished: state, whatever the copy's state; None where the copy decides.
DELETES = {
    ("none", "none"): None,
    ("none", "accepted"): GONE,
    ("none", "fenced"): None,
    ("accepted", "none"): GOING,
    ("accepted", "accepted"): GONE,
    ("accepted", "fenced"): GOING,
    ("fenced", "none"): None,
    ("fenced", "accepted"): GONE,
    ("fenced", "fenced"): None,
}


def expected(started: str, finished: str, delete_started: str, delete_finished: str) -> str | None:
    by_delete = DELETES[delete_started, delete_finished]
    by_copy = COPIES[started, finished]
    if by_delete is None and by_copy is None and (delete_started, delete_finished) != ("none", "none"):
        return GONE  # only fenced deletes: a zombie wrote after everything was erased
    return by_delete or by_copy


def test_every_combination_of_facts_has_the_state_of_the_table(build: Build) -> None:
    lower, higher = build.term(1, 0), build.term(2, 10)
    by = {"accepted": higher, "fenced": lower, "lower": lower}
    ways, walked = ("none", "accepted", "fenced"), 0
    for cs, cf, ds, df in product((*ways, "lower"), ways, ways, ways):
        facts = [build.leader(0, 1), build.leader(10, 2)]
        if cs != "none":
            facts.append(build.started(5 if cs == "lower" else 11, 1, by[cs]))
        if cf == "accepted" and cs == "lower":
            facts.append(build.finished(6, 1, lower))
        elif cf != "none":
            facts.append(build.finished(12, 1, by[cf]))
        if ds != "none":
            facts.append(build.delete_started(13, 1, by[ds]))
        if df != "none":
            facts.append(build.delete_finished(14, 1, by[df], 1))
        view = build.view(*facts)
        case = f"copy-started {cs}, copy-finished {cf}, delete-started {ds}, delete-finished {df}"
        assert build.state_of(1, view) == expected(cs, cf, ds, df), case
        assert len(view.readable) == (expected(cs, cf, ds, df) == READABLE), case
        walked += 1
    assert walked == 4 * 3 * 3 * 3


def test_a_copy_without_a_leader_is_abandoned(build: Build) -> None:
    assert build.state_of(1, build.view(build.started(5, 1, build.term(1, 0)))) == SegmentState.ABANDONED


def test_a_copy_that_started_before_its_own_term_began_is_abandoned(build: Build) -> None:
    view = build.view(build.started(5, 1, build.term(1, 6)), build.leader(6, 1))
    assert build.state_of(1, view) == SegmentState.ABANDONED


def test_a_finished_copy_stays_readable_when_every_leader_is_erased(build: Build) -> None:
    term = build.term(1, 0)
    view = build.view(build.started(5, 1, term), build.finished(6, 1, term))
    assert build.state_of(1, view) == SegmentState.COPY_SEGMENT_FINISHED


def test_a_twin_term_at_one_position_is_not_the_highest(build: Build) -> None:
    view = build.view(build.leader(0, 1, number=1), build.started(5, 1, build.term(1, 0, 2)))
    assert build.state_of(1, view) == SegmentState.ABANDONED


def test_the_descriptor_survives_in_the_delete_when_the_copy_is_erased(build: Build) -> None:
    term = build.term(1, 0)
    view = build.view(build.leader(0, 1), build.delete_finished(9, 1, term))
    meant = view.segments[build.segment_id(1)]
    assert meant.subject == build.segment(1, term)
    assert meant.position == 9


def legal(build: Build) -> list[LiveFact]:
    term = build.term(1, 0)
    return [
        build.leader(0, 1),
        build.started(1, 1, term),
        build.finished(2, 1, term),
        build.delete_started(3, 1, term, 1),
        build.delete_finished(4, 1, term, 2),
    ]


def test_every_prefix_of_a_life_and_every_step_of_its_erasing_is_legal(build: Build) -> None:
    leader, started, finished, going, gone = legal(build)
    steps = [[started], [started, finished], [started, finished, going], [started, finished, going, gone]]
    steps += [[started, going, gone], [going, gone], [gone], []]
    for facts in steps:
        assert build.view(leader, *facts).contradictions == ()


def test_a_sweep_of_a_copy_that_never_finished_is_legal(build: Build) -> None:
    leader, started, _, going, gone = legal(build)
    assert build.view(leader, started, going).contradictions == ()
    assert build.view(leader, started, going, gone).contradictions == ()


def test_a_finished_copy_after_an_accepted_delete_is_a_contradiction(build: Build) -> None:
    term = build.term(1, 0)
    facts = [
        build.leader(0, 1),
        build.started(1, 1, term),
        build.delete_started(3, 1, term),
        build.finished(4, 1, term),
    ]
    [contradiction] = build.view(*facts).contradictions
    assert "copy-finished at 4 after " in contradiction
    assert "delete-started/1/0/0 at 3" in contradiction


def test_a_finished_copy_without_its_start_is_a_contradiction(build: Build) -> None:
    [contradiction] = build.view(build.leader(0, 1), build.finished(2, 1, build.term(1, 0))).contradictions
    assert contradiction.endswith("copy-finished at 2 without its copy-started")


def test_a_copy_started_that_lands_a_second_time_takes_nothing_away(build: Build) -> None:
    term = build.term(1, 0)
    view = build.view(build.leader(0, 1), build.finished(1, 1, term), build.started(2, 1, term))
    assert build.state_of(1, view) == READABLE
    assert view.contradictions == ()


def test_a_copy_finished_by_another_term_or_over_another_range_is_a_contradiction(build: Build) -> None:
    one, two = build.term(1, 0), build.term(2, 10)
    leaders = [build.leader(0, 1), build.leader(10, 2)]
    assert build.view(*leaders, build.started(1, 1, one), build.finished(12, 1, two)).contradictions
    assert build.view(*leaders, build.started(11, 1, two, 0, 99), build.finished(12, 1, two, 0, 98)).contradictions
    assert not build.view(*leaders, build.started(11, 1, two, 0, 98), build.finished(12, 1, two, 0, 98)).contradictions


def test_a_delete_that_finished_but_never_started_contradicts_a_living_copy(build: Build) -> None:
    leader, started, finished, _, gone = legal(build)
    [contradiction] = build.view(leader, started, finished, gone).contradictions
    assert "without a delete-started" in contradiction
    assert build.view(leader, started, gone).contradictions


def test_fenced_facts_never_contradict(build: Build) -> None:
    zombie, term = build.term(1, 0), build.term(2, 10)
    leaders = [build.leader(0, 1), build.leader(10, 2)]
    assert build.view(*leaders, build.finished(11, 1, zombie)).contradictions == ()
    assert build.view(*leaders, build.delete_started(11, 1, term), build.finished(12, 1, zombie)).contradictions == ()
    late = [build.started(12, 1, zombie), build.delete_finished(11, 1, term)]
    assert build.view(*leaders, *late).contradictions == ()
    fenced_delete = [build.delete_finished(13, 1, zombie)]
    copied = [build.started(11, 1, term), build.finished(12, 1, term)]
    assert build.view(*leaders, *copied, *fenced_delete).contradictions == ()


def test_the_meaning_does_not_depend_on_the_order_in_which_facts_are_handed_in(build: Build) -> None:
    facts = [*legal(build), build.trim(7, build.term(1, 0), 5, 3), build.trim(8, build.term(1, 0), 4, 4)]
    assert build.view(*facts) == build.view(*reversed(facts))
