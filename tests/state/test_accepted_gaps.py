"""A gap that a person accepted: readers go on behind it, and nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.state.conftest import NOW
from tests.state.test_routing import HERE, bounds, short
from tierstate.state.epochs import Lineage
from tierstate.state.errors import LineageUnconfirmed, LogGap
from tierstate.state.facts import GapAccepted, LiveFact, UnknownFact
from tierstate.state.offsets import Offset, OffsetRange, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Tier, route

if TYPE_CHECKING:
    from tests.state.conftest import Build


def accepted(build: Build, start: int, end: int, lineage: Lineage | None = None, number: int = 9) -> LiveFact:
    epochs = Lineage.of((0, 0)) if lineage is None else lineage
    offsets = OffsetRange(Offset(start), Offset(end))
    return build.live(
        90 + number, GapAccepted(build.partition, build.fact_id(number), offsets, epochs, "lost", "ops", NOW)
    )


def view_of(build: Build, *facts: LiveFact, lineage: Lineage | None = None) -> PartitionView:
    """Return a view with log start 10 and remote 10..99 and 120..199; no tier has 100..119."""
    term = build.term(1, 0)
    facts_before = [build.leader(0, 1, lineage=lineage), build.log_start(1, term, 10)]
    for at, (start, end) in enumerate([(0, 99), (120, 199)], 1):
        facts_before += [build.started(2 * at, at, term, start, end), build.finished(2 * at + 1, at, term, start, end)]
    return build.view(*facts_before, *facts)


@pytest.mark.parametrize("tier", [Tier.AUTO, Tier.REMOTE, Tier.PREFER_REMOTE])
@pytest.mark.parametrize("offset", [100, 110, 119])
def test_a_reader_in_an_accepted_gap_goes_on_behind_it(build: Build, tier: Tier, offset: int) -> None:
    assert short(route(view_of(build, accepted(build, 100, 119)), HERE, offset, tier=tier)) == ("2", 120, 199)


def test_a_gap_that_ends_where_the_broker_begins_goes_on_there(build: Build) -> None:
    view = view_of(build, accepted(build, 200, 249))
    assert short(route(view, bounds(250, 300), 200)) == ("local", 250)
    assert short(route(view, bounds(250, 250), 200)) == ("end", 250)


def test_the_rest_of_a_partly_accepted_gap_is_still_a_gap(build: Build) -> None:
    for facts in ([accepted(build, 100, 109)], [accepted(build, 100, 104), accepted(build, 105, 109, number=8)]):
        with pytest.raises(LogGap) as error:
            route(view_of(build, *facts), HERE, 100)
        assert (error.value.start, error.value.end) == (110, 119)
    with pytest.raises(LogGap) as error:
        route(view_of(build, accepted(build, 110, 119)), HERE, 100)
    assert error.value.start == 100


def test_records_of_a_tier_are_read_even_in_an_accepted_gap(build: Build) -> None:
    view = view_of(build, accepted(build, 10, 299))
    for offset, expected in [(10, ("1", 10, 99)), (130, ("2", 130, 199)), (180, ("local", 180))]:
        assert short(route(view, HERE, offset)) == expected
    assert short(route(view, HERE, 100)) == ("2", 120, 199)
    assert short(route(view, bounds(110, 300), 100)) == ("local", 110)


def test_an_accepted_gap_covers_nothing(build: Build) -> None:
    plain, view = view_of(build), view_of(build, accepted(build, 100, 119))
    assert view.coverage == plain.coverage
    assert view.copied_to == plain.copied_to == 99
    whole = OffsetRange(Offset(10), Offset(199))
    assert (plain.gaps(whole), view.gaps(whole)) == ([OffsetRange(Offset(100), Offset(119))], [])


def test_a_gap_accepted_on_another_branch_holds_up_to_the_fork(build: Build) -> None:
    epochs = Lineage.of((0, 0), (1, 105))
    view = view_of(build, accepted(build, 100, 119, epochs), lineage=Lineage.of((0, 0), (2, 110)))
    with pytest.raises(LogGap) as error:
        route(view, bounds(180, 300), 100)
    assert error.value.start == 105
    of_another_log = view_of(build, accepted(build, 100, 119, Lineage.of((7, 0))))
    with pytest.raises(LogGap):
        route(of_another_log, HERE, 100)


def test_no_gap_is_passed_over_where_the_leader_does_not_confirm_the_log(build: Build) -> None:
    view = view_of(build, accepted(build, 100, 119))
    with pytest.raises(LineageUnconfirmed):
        route(view, bounds(180, 300, epoch=2), 100, confirmed=Offset(100))


def test_no_gap_is_passed_over_while_a_later_release_may_explain_it(build: Build) -> None:
    later = LiveFact(f"{build.partition.topic_id}/3/omen/x", Position(80), UnknownFact("omen", "later", later=True))
    with pytest.raises(LogGap):
        route(view_of(build, accepted(build, 100, 119), later), HERE, 100)
