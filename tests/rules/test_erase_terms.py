"""The conditions for erasing a lower term, and that no tombstone changes the meaning of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.erasures import (
    BASE,
    ELDER,
    KEEP,
    NOTHING,
    OLD,
    PAUSE,
    RESUME,
    TERM,
    all_of,
    build,
    order,
)
from tests.state.conftest import NOW
from tierstate.rules.decide import standing_order
from tierstate.rules.erase import Erase, knows, next_erasure, unfences
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LeaderElected, LiveFact
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import Term


def test_a_lower_term_goes_wherever_it_stands() -> None:
    below, above, same_epoch = ELDER, build.leader(15, 1, number=7), build.leader(5, 2, number=8)
    assert all_of(below, same_epoch, above) == [(0,), (5,), (15,)]


def test_a_term_erases_lower_terms_only_and_itself_never() -> None:
    later = build.leader(20, 3)
    assert all_of(ELDER, later) == [(0,), (10,)]
    view = build.view(*BASE, ELDER, later)
    decision = next_erasure(view, TERM, Offset(0), None, NOW)
    assert decision == Erase((ELDER.key,), "lower term")
    above = next_erasure(build.view(*BASE, later), TERM, Offset(0), None, NOW)
    assert above == NOTHING, "a zombie that looked too early"


FENCED = {
    "copy": [build.started(12, 1, OLD)],
    "finished copy": [build.started(12, 1, OLD), build.finished(13, 1, OLD)],
    "copy that is being deleted": [build.started(12, 1, OLD), build.delete_started(22, 1, build.term(3, 20))],
}


@pytest.mark.parametrize("facts", FENCED.values(), ids=FENCED.keys())
def test_a_fenced_fact_below_the_term_in_force_keeps_every_lower_term(facts: list[LiveFact]) -> None:
    """Only one of those terms fences it: if that were erased earlier, a zombie's segment would be readable."""
    third = build.leader(20, 3)
    assert all_of(ELDER, third, *facts) == []
    unfenced = build.view(ELDER, BASE[1], third, *facts)
    fenced = build.view(ELDER, *BASE, third, *facts)
    key = facts[0].key
    assert (key in fenced.fenced, key in unfenced.fenced) == (True, False)


@pytest.mark.parametrize(
    "late", [build.log_start(12, OLD, 5), build.trim(12, OLD, 5), build.delete_started(12, 9, OLD)]
)
def test_facts_that_may_always_go_precede_the_terms_that_fence_them(late: LiveFact) -> None:
    assert all_of(ELDER, build.leader(20, 3), late) == [(12,), (0,), (10,)]


def test_facts_fenced_by_the_term_in_force_keep_no_lower_term() -> None:
    late = build.started(12, 1, OLD)
    assert all_of(ELDER, late) == [(0,)]
    assert late.key in build.view(*BASE, late).fenced


def test_a_twins_facts_keep_the_term_whose_place_they_claim() -> None:
    """Its LeaderElected was lost in an unclean election of the tier-state topic; another one is there now."""
    twin = build.started(2, 1, build.term(1, 0, number=55))
    assert all_of(ELDER, twin) == []
    assert unfences(build.view(*BASE, ELDER, twin), TERM)
    assert build.state_of(1, build.view(ELDER, twin)) == "ABANDONED"


def test_a_term_of_another_branch_stays_until_the_log_start_has_passed_it() -> None:
    branch = build.leader(0, 1, lineage=Lineage.of((0, 0), (1, 100)))
    for log_start, erased in ((100, []), (101, [(0,)])):
        lineage = Lineage.of((0, 0), (2, 80))
        base = (build.leader(10, 2, lineage=lineage), build.log_start(11, TERM, log_start, lineage=lineage))
        assert all_of(branch, base=base) == erased


def test_a_term_of_another_branch_stays_as_long_as_segments_of_its_epochs_do() -> None:
    """If the branch comes back, only this term continues its leader's checkpoint."""
    branch = build.leader(0, 1, lineage=Lineage.of((0, 0), (1, 100)))
    copied = (build.started(1, 1, OLD, 100, 149), build.finished(2, 1, OLD, 100, 149, Lineage.of((1, 100))))
    lineage = Lineage.of((0, 0), (2, 80))
    base = (build.leader(10, 2, lineage=lineage), build.log_start(11, TERM, 300, lineage=lineage))
    assert all_of(branch, *copied, base=base) == []
    gone = (build.delete_started(12, 1, TERM), build.delete_finished(13, 1, TERM))
    assert all_of(branch, *copied, *gone, base=base) == [(2, 1, 12, 13), (0,)]


def test_a_log_start_of_another_branch_stays_until_one_stands_for_it_there() -> None:
    """A log start of this branch holds on the other up to the fork: with the old one erased, the rest would be lost."""
    there, here = Lineage.of((0, 0), (1, 50)), Lineage.of((0, 0), (2, 70))
    base = (build.leader(10, 2, lineage=here),)
    said_there = build.log_start(4, OLD, 90, lineage=there)
    higher = build.log_start(11, TERM, 200, lineage=here)
    assert all_of(said_there, higher, base=base) == [], "50 of them are one log"
    same_log = build.log_start(12, TERM, 210, lineage=Lineage.of((0, 0), (1, 50), (2, 95)))
    assert (4,) in all_of(said_there, higher, same_log, base=base)
    below_fork = build.log_start(4, OLD, 40, lineage=Lineage.of((0, 0)))
    assert (4,) in all_of(below_fork, higher, base=base)


EARLIER = Lineage.of((0, 0), (1, 50), (3, 100))


@pytest.mark.parametrize(
    ("lineage", "earlier", "log_start", "known"),
    [
        # contained
        (EARLIER, EARLIER, 0, True),
        (Lineage.of((0, 0), (1, 50), (3, 100), (4, 200)), EARLIER, 0, True),
        (Lineage.of((0, 0), (1, 50)), Lineage(), 0, True),
        (Lineage(), Lineage(), 0, True),
        (
            Lineage.of((1, 40), (3, 90)),
            Lineage.of((1, 50), (3, 100)),
            0,
            True,
        ),  # an earlier one after a trim: true starts
        (Lineage.of((0, 0), (1, 50), (4, 100)), Lineage.of((0, 0), (1, 50)), 0, True),  # ended, as every last epoch is
        # truncated: composed from a checkpoint that no earlier one continues below its first offset
        (Lineage.of((3, 100), (4, 200)), EARLIER, 0, False),
        (Lineage.of((3, 100), (4, 200)), EARLIER, 99, False),
        (Lineage.of((3, 100), (4, 200)), EARLIER, 100, True),
        (Lineage.of((1, 70), (3, 100)), EARLIER, 99, False),  # 1 only from 70 on
        (Lineage.of((1, 70), (3, 100)), EARLIER, 100, True),
        (
            Lineage.of((0, 0), (1, 50), (3, 120)),
            EARLIER,
            100,
            False,
        ),  # the earlier one's last, which this one has later
        (Lineage.of((0, 0), (1, 50), (3, 120)), EARLIER, 101, True),
        (Lineage(), EARLIER, 100, False),
        (Lineage(), EARLIER, 101, True),
        # another branch: an unclean election took another log over
        (Lineage.of((0, 0), (1, 50), (4, 80)), EARLIER, 0, False),
        (Lineage.of((0, 0), (1, 50), (4, 80)), EARLIER, 100, False),
        (Lineage.of((0, 0), (1, 50), (4, 80)), EARLIER, 101, True),
        (Lineage.of((0, 0), (2, 30), (3, 100)), EARLIER, 99, False),  # 1 is foreign, up to where 3 begins
        (Lineage.of((0, 0), (2, 30), (3, 100)), EARLIER, 100, True),
        (Lineage.of((0, 0), (2, 30)), EARLIER, 100, False),
        # a last epoch without a record: Kafka's next leader does not know it
        (Lineage.of((0, 0), (1, 50), (4, 100)), EARLIER, 99, False),
        (Lineage.of((0, 0), (1, 50), (4, 100)), EARLIER, 100, False),
        (Lineage.of((0, 0), (1, 50), (4, 100)), EARLIER, 101, True),
        (Lineage.of((0, 0), (3, 50)), Lineage.of((0, 0), (1, 50), (3, 50)), 49, False),  # empty, in the middle
        (Lineage.of((0, 0), (3, 50)), Lineage.of((0, 0), (1, 50), (3, 50)), 50, True),
    ],
)
def test_a_lineage_contains_an_earlier_one_or_not(
    lineage: Lineage, earlier: Lineage, log_start: int, known: bool
) -> None:
    assert knows(lineage, earlier, Offset(log_start)) is known


# --- all of it ---------------------------------------------------------------------------------------------------


@st.composite
def live_sets(draw: st.DrawFn) -> list[LiveFact]:
    """Draw terms in any order of epochs, each written by itself or by a twin, and facts of theirs at any position."""
    begun = [
        build.leader(at * 10, draw(st.integers(1, 3)), lineage=draw(st.sampled_from(LINEAGES)))
        for at in range(draw(st.integers(1, 4)))
    ]
    terms = [build.term(live.fact.epoch, live.position) for live in begun if isinstance(live.fact, LeaderElected)]
    terms += [build.term(term.epoch, term.position, number=3) for term in terms]
    kept = [live for live in begun if draw(st.integers(0, 4))] or begun[-1:]
    facts = {live.key: live for live in kept}
    for counter in range(draw(st.integers(0, 12))):
        position = draw(st.integers(0, 4)) * 10 + 1 + counter % 9
        if position not in {live.position for live in facts.values()}:
            live = any_fact(draw, position, draw(st.sampled_from(terms)), counter)
            facts.setdefault(live.key, live)
    return list(facts.values())


LINEAGES = [Lineage.of((0, 0)), Lineage.of((0, 0), (1, 50)), Lineage.of((0, 0), (2, 80)), Lineage.of((0, 0), (3, 150))]


def any_fact(draw: st.DrawFn, position: int, term: Term, counter: int) -> LiveFact:
    number = draw(st.integers(0, 2))
    start = number * 100
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return build.log_start(position, term, draw(st.sampled_from([0, 100, 101, 200])), counter)
    if kind == 1:
        return build.trim(position, term, start, counter)
    if kind == 2:
        return build.delete_started(position, number, term, counter)
    if kind == 3:
        return build.delete_finished(position, number, term, counter)
    if kind == 4:
        return build.finished(position, number, term, start, start + 99)
    if kind == 5:
        return order(position, counter, draw(st.sampled_from([PAUSE, RESUME, KEEP])))
    return build.started(position, number, term, start, start + 99)


def told(view: PartitionView, left: set[str]) -> dict[str, object]:
    """Return what must not change; for segments and fences only those in ``left``."""
    gone = {each.segment_id for each in view.segments.values() if each.state == "DELETE_SEGMENT_FINISHED"}
    return {
        "term": (view.term, view.leader),
        "readable": (view.readable, view.coverage.owned),
        "offsets": (view.log_start, view.trim_intended),
        "order": standing_order(view),
        "contradictions": view.contradictions,
        "fenced": view.fenced & left,
        "segments": {each.segment_id: each.state for each in view.unsettled if each.segment_id not in gone},
    }


@settings(max_examples=500)
@given(live_sets())
def test_no_tombstone_changes_what_the_rest_means(facts: list[LiveFact]) -> None:
    left = list(facts)
    view = build.view(*left)
    while view.term is not None:
        decision = next_erasure(view, view.term, Offset(0), None, NOW)
        if isinstance(decision, str):
            break
        for key in decision.keys:
            left = [live for live in left if live.key != key]
            keys = {live.key for live in left}
            after = build.view(*left)
            assert told(after, keys) == told(view, keys)
            view = after
