"""Routing while the leader's epoch has no term: the view counts as far as the broker confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.state.test_routing import AUTO, LOCAL, PREFER, REMOTE, bounds, short
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import LineageUnconfirmed, LogGap, OffsetOutOfRange
from tierstate.state.lineage import EpochEnd, confirmed_end, epoch_end
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Tier, in_force, route

if TYPE_CHECKING:
    from tests.state.conftest import Build

CUT = bounds(180, 300, epoch=2)
"""Bounds of a leader whose log begins above the point where it left the copied one."""


@pytest.fixture
def view(build: Build) -> PartitionView:
    """Return a view of epoch 1: log start 10, remote 10..99 and 120..199."""
    term = build.term(1, 0)
    facts = [build.leader(0, 1), build.log_start(1, term, 10)]
    for at, (start, end) in enumerate([(0, 99), (120, 199)], 1):
        facts += [build.started(2 * at, at, term, start, end), build.finished(2 * at + 1, at, term, start, end)]
    return build.view(*facts)


@pytest.mark.parametrize("epoch", [2, 9, None])
@pytest.mark.parametrize("tier", [AUTO, PREFER, REMOTE])
def test_copies_of_an_older_term_are_not_served_before_the_broker_was_asked(
    tier: Tier, epoch: int | None, view: PartitionView
) -> None:
    with pytest.raises(LineageUnconfirmed) as error:
        route(view, bounds(180, 300, epoch=epoch), 50, tier=tier)
    assert f"the leader's epoch {epoch} has no term yet" in str(error.value)
    assert "epoch 1" in str(error.value)


@pytest.mark.parametrize(("offset", "served"), [(10, ("1", 10, 59)), (59, ("1", 59, 59))])
def test_remote_is_served_up_to_where_the_broker_confirms_it(
    offset: int, served: tuple[object, ...], view: PartitionView
) -> None:
    assert short(route(view, CUT, offset, confirmed=Offset(60))) == served


@pytest.mark.parametrize("offset", [60, 99, 100, 179])
@pytest.mark.parametrize("tier", [AUTO, PREFER, REMOTE])
def test_beyond_it_neither_a_record_nor_a_gap_is_returned(offset: int, tier: Tier, view: PartitionView) -> None:
    with pytest.raises(LineageUnconfirmed) as error:
        route(view, CUT, offset, tier=tier, confirmed=Offset(60))
    assert error.value.facts["confirmed_below"] == 60


def test_a_gap_below_it_is_one_and_ends_there(view: PartitionView) -> None:
    with pytest.raises(LogGap) as gap:
        route(view, CUT, 100, confirmed=Offset(110))
    assert (gap.value.start, gap.value.end) == (100, 109)


def test_the_brokers_own_records_need_no_confirmation(view: PartitionView) -> None:
    for tier in (AUTO, LOCAL, PREFER):
        assert short(route(view, CUT, 180, tier=tier)) == ("local", 180)
        assert short(route(view, CUT, 300, tier=tier)) == ("end", 300)
    with pytest.raises(OffsetOutOfRange):
        route(view, CUT, 179, tier=LOCAL)


def test_a_log_start_counts_only_where_the_broker_confirms_it(view: PartitionView) -> None:
    for offset in (9, 301):
        with pytest.raises(LineageUnconfirmed):
            route(view, CUT, offset)
        with pytest.raises(LineageUnconfirmed):
            route(view, CUT, offset, confirmed=Offset(9))
        with pytest.raises(OffsetOutOfRange) as error:
            route(view, CUT, offset, confirmed=Offset(10))
        assert (error.value.valid_start, error.value.valid_end) == (10, 300)


def test_a_log_that_begins_below_a_log_start_of_another_branch_is_read(build: Build) -> None:
    view = build.view(build.leader(0, 1), build.log_start(1, build.term(1, 0), 200))
    anew = bounds(0, 300, epoch=2)
    with pytest.raises(LineageUnconfirmed):
        route(view, anew, 50)
    assert short(route(view, anew, 50, confirmed=Offset(0))) == ("local", 50)
    with pytest.raises(LineageUnconfirmed):
        route(view, anew, 301, confirmed=Offset(0))
    with pytest.raises(OffsetOutOfRange):
        route(view, anew, 50, confirmed=Offset(200))


def test_a_log_that_ends_below_a_log_start_is_read_without_a_question(build: Build) -> None:
    view = build.view(build.leader(0, 1), build.log_start(1, build.term(1, 0), 200))
    assert short(route(view, bounds(0, 100, epoch=2), 50)) == ("local", 50)
    assert short(route(view, bounds(0, 100, epoch=2), 100)) == ("end", 100)


def test_the_remote_tier_alone_says_how_far_it_reaches_only_where_that_is_confirmed(view: PartitionView) -> None:
    with pytest.raises(OffsetOutOfRange) as error:
        route(view, CUT, 250, tier=REMOTE, confirmed=Offset(100))
    assert (error.value.valid_start, error.value.valid_end) == (10, 100)
    with pytest.raises(LineageUnconfirmed):
        route(view, CUT, 250, tier=REMOTE, confirmed=Offset(99))


def test_a_view_without_any_fact_has_nothing_to_confirm(build: Build) -> None:
    with pytest.raises(OffsetOutOfRange):
        route(build.view(), CUT, 179)
    assert short(route(build.view(), CUT, 180)) == ("local", 180)
    with pytest.raises(OffsetOutOfRange) as error:
        route(build.view(), CUT, 180, tier=REMOTE)
    assert (error.value.valid_start, error.value.valid_end) == (180, 180)


@pytest.mark.parametrize(("epoch", "rules"), [(0, True), (1, True), (2, False), (None, False)])
def test_a_lineage_is_in_force_from_its_own_epoch_down(epoch: int | None, rules: bool, view: PartitionView) -> None:
    assert in_force(view, bounds(0, 1, epoch=epoch)) is rules


def leader(*epochs: tuple[int, int], log_end: int = 500) -> dict[int, EpochEnd]:
    """Return a log's answers for each epoch that it knows, by its checkpoint."""
    ends = {}
    for epoch_asked in range(epochs[0][0], epochs[-1][0] + 1):
        above = [start for epoch, start in epochs if epoch > epoch_asked]
        floor = max(epoch for epoch, _ in epochs if epoch <= epoch_asked)
        ends[epoch_asked] = EpochEnd(LeaderEpoch(floor), Offset(above[0] if above else log_end))
    return ends


SAID = Lineage.of((1, 0), (3, 40), (5, 100))


@pytest.mark.parametrize(
    ("epochs", "end"),
    [
        ([(1, 0), (3, 40), (5, 100), (6, 170)], 170),  # a clean election: all that the old leader had
        ([(5, 160), (6, 170)], 170),  # the same, trimmed
        ([(1, 0), (3, 40), (6, 70)], 70),  # unclean, from a log that had not heard of epoch 5
        ([(1, 0), (3, 40), (6, 130)], 100),  # epoch 5 began before this one's epoch 3 ended
        ([(3, 50), (4, 80), (6, 120)], 80),  # 4 is another branch's
        ([(1, 0), (4, 20), (6, 120)], 20),
        ([(4, 50), (6, 120)], 0),  # where 4 left the lineage is forgotten
        ([(6, 120)], 0),  # as after DeleteRecords above the branch point
    ],
)
def test_a_leader_confirms_a_lineage_up_to_where_their_epochs_part(epochs: list[tuple[int, int]], end: int) -> None:
    assert confirmed_end(SAID, leader(*epochs).get) == end


def test_one_question_is_enough_where_the_leader_knows_the_newest_epoch() -> None:
    epochs: list[int] = []

    def ask(epoch: LeaderEpoch) -> EpochEnd | None:
        epochs.append(epoch)
        return leader((5, 160), (6, 170)).get(epoch)

    confirmed_end(SAID, ask)
    assert epochs == [5]
    assert confirmed_end(Lineage(), ask) == 0


def test_an_answer_for_an_epoch_before_the_first_known_proves_nothing() -> None:
    """Kafka's end of a forgotten epoch is the start of the first one it knows."""
    three, five, end = LeaderEpoch(3), LeaderEpoch(5), Offset(120)
    assert epoch_end(three, three, end, five) is None
    assert epoch_end(five, five, end, five) == EpochEnd(five, end)
    assert epoch_end(five, three, end, three) == EpochEnd(three, end)
    assert epoch_end(five, None, end, three) is None
    assert epoch_end(five, five, end, None) is None
