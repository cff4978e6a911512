"""Routing: every branch, both isolation levels, every tier option; offsets that no tier has are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import LogGap, OffsetOutOfRange
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import AtEnd, Isolation, LocalBounds, ReadLocal, ReadRemote, Route, Tier, log_start, route

if TYPE_CHECKING:
    from tests.state.conftest import Build


def bounds(local: int, high: int, stable: int | None = None, epoch: int | None = 1) -> LocalBounds:
    answered = None if epoch is None else LeaderEpoch(epoch)
    return LocalBounds(Offset(local), Offset(high), Offset(high if stable is None else stable), answered)


# Log start 10; remote 10..99 and 120..199, no tier has 100..119; the broker has 180.. to 300 (LSO 290).
HERE = bounds(180, 300, 290)


@pytest.fixture
def view(build: Build) -> PartitionView:
    term = build.term(1, 0)
    facts = [build.leader(0, 1), build.log_start(1, term, 10)]
    for at, (start, end) in enumerate([(0, 99), (120, 199)], 1):
        facts += [build.started(2 * at, at, term, start, end), build.finished(2 * at + 1, at, term, start, end)]
    return build.view(*facts)


def short(routed: Route) -> tuple[object, ...]:
    match routed:
        case ReadLocal(offset=offset):
            return "local", offset
        case AtEnd(offset=offset):
            return "end", offset
        case ReadRemote(segment=segment, offsets=offsets):
            return segment.object_key[0], offsets.start, offsets.end


LOCAL, REMOTE, PREFER, AUTO = Tier.LOCAL, Tier.REMOTE, Tier.PREFER_REMOTE, Tier.AUTO
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("tier", "isolation", "offset", "expected"),
    [
        (AUTO, COMMITTED, 10, ("1", 10, 99)),
        (AUTO, COMMITTED, 99, ("1", 99, 99)),
        (AUTO, COMMITTED, 120, ("2", 120, 199)),
        (AUTO, COMMITTED, 179, ("2", 179, 199)),
        (AUTO, COMMITTED, 180, ("local", 180)),  # both tiers have it
        (AUTO, COMMITTED, 289, ("local", 289)),
        (AUTO, COMMITTED, 290, ("end", 290)),
        (AUTO, UNCOMMITTED, 290, ("local", 290)),
        (AUTO, UNCOMMITTED, 299, ("local", 299)),
        (AUTO, UNCOMMITTED, 300, ("end", 300)),
        (LOCAL, COMMITTED, 180, ("local", 180)),
        (LOCAL, COMMITTED, 290, ("end", 290)),
        (REMOTE, COMMITTED, 10, ("1", 10, 99)),
        (REMOTE, COMMITTED, 199, ("2", 199, 199)),
        (REMOTE, COMMITTED, 290, ("end", 290)),
        (PREFER, COMMITTED, 10, ("1", 10, 99)),
        (PREFER, COMMITTED, 180, ("2", 180, 199)),
        (PREFER, COMMITTED, 200, ("local", 200)),
        (PREFER, COMMITTED, 290, ("end", 290)),
    ],
)
def test_an_offset_is_read_where_the_table_says(
    tier: Tier, isolation: Isolation, offset: int, expected: tuple[object, ...], view: PartitionView
) -> None:
    assert short(route(view, HERE, offset, isolation=isolation, tier=tier)) == expected


@pytest.mark.parametrize(
    ("tier", "isolation", "offset", "start", "end"),
    [
        (AUTO, COMMITTED, 9, 10, 290),
        (AUTO, COMMITTED, -1, 10, 290),
        (AUTO, COMMITTED, 291, 10, 290),
        (AUTO, UNCOMMITTED, 301, 10, 300),
        (LOCAL, COMMITTED, 9, 10, 290),
        (LOCAL, COMMITTED, 179, 180, 290),
        (LOCAL, UNCOMMITTED, 110, 180, 300),
        (REMOTE, COMMITTED, 200, 10, 100),
        (PREFER, COMMITTED, 291, 10, 290),
    ],
)
def test_an_offset_outside_the_log_or_tier_raises_the_valid_range(
    tier: Tier, isolation: Isolation, offset: int, start: int, end: int, view: PartitionView
) -> None:
    with pytest.raises(OffsetOutOfRange) as error:
        route(view, HERE, offset, isolation=isolation, tier=tier)
    assert (error.value.valid_start, error.value.valid_end) == (start, end)


@pytest.mark.parametrize("tier", [AUTO, REMOTE, PREFER])
@pytest.mark.parametrize("offset", [100, 119])
def test_a_hole_is_an_error_that_names_the_missing_offsets(tier: Tier, offset: int, view: PartitionView) -> None:
    with pytest.raises(LogGap) as error:
        route(view, HERE, offset, tier=tier)
    assert (error.value.start, error.value.end) == (offset, 119)


def test_a_hole_up_to_the_local_tier_ends_where_the_broker_begins(view: PartitionView) -> None:
    with pytest.raises(LogGap) as error:
        route(view, bounds(250, 300), 200)
    assert (error.value.start, error.value.end) == (200, 249)


def test_a_hole_never_reaches_beyond_the_end(view: PartitionView) -> None:
    with pytest.raises(LogGap) as error:
        route(view, bounds(250, 300, stable=240), 205)
    assert (error.value.start, error.value.end) == (205, 239)
    with pytest.raises(LogGap) as error:
        route(view, bounds(250, 300, stable=110), 105)
    assert (error.value.start, error.value.end) == (105, 109)


def test_a_remote_read_never_passes_the_end(view: PartitionView) -> None:
    assert short(route(view, bounds(180, 190), 130, isolation=UNCOMMITTED)) == ("2", 130, 189)
    assert short(route(view, bounds(150, 190, 170), 160, tier=PREFER)) == ("2", 160, 169)


def test_the_end_below_the_local_start_is_still_the_end(view: PartitionView) -> None:
    assert short(route(view, bounds(180, 185, stable=150), 150)) == ("end", 150)


def test_a_fully_trimmed_broker_serves_the_end_only(view: PartitionView) -> None:
    assert short(route(view, bounds(200, 200), 200)) == ("end", 200)
    assert short(route(view, bounds(200, 200), 199)) == ("2", 199, 199)


@pytest.mark.parametrize("epoch", [0, 2, None])
def test_remote_is_preferred_only_while_the_broker_leads_in_the_epoch_of_the_term(
    epoch: int | None, view: PartitionView
) -> None:
    elsewhere = bounds(180, 300, epoch=epoch)
    assert short(route(view, elsewhere, 180, tier=PREFER)) == ("local", 180)
    assert short(route(view, elsewhere, 179, tier=PREFER, confirmed=Offset(300))) == ("2", 179, 199)
    assert short(route(view, elsewhere, 180, tier=REMOTE, confirmed=Offset(300))) == ("2", 180, 199)


def test_without_any_fact_the_broker_is_the_log(build: Build) -> None:
    empty = build.view()
    assert log_start(empty, HERE) == 180
    assert short(route(empty, HERE, 180)) == ("local", 180)
    assert short(route(empty, HERE, 180, tier=PREFER)) == ("local", 180)
    for tier in (AUTO, LOCAL, PREFER, REMOTE):
        with pytest.raises(OffsetOutOfRange):
            route(empty, HERE, 179, tier=tier)


def test_the_log_start_is_what_facts_say_even_when_the_broker_has_more(build: Build) -> None:
    view = build.view(build.leader(0, 1), build.log_start(1, build.term(1, 0), 200))
    with pytest.raises(OffsetOutOfRange) as error:
        route(view, HERE, 199)
    assert error.value.valid_start == 200
    assert short(route(view, HERE, 200)) == ("local", 200)


def test_a_segment_out_of_lineage_or_no_longer_readable_serves_nothing(build: Build) -> None:
    term = build.term(1, 0)
    facts = [build.leader(0, 1), build.log_start(1, term, 0), build.started(2, 1, term), build.finished(3, 1, term)]
    assert short(route(build.view(*facts), HERE, 50)) == ("1", 50, 99)
    for gone in (build.delete_started(4, 1, term), build.leader(4, 2, lineage=Lineage.of((2, 0)))):
        with pytest.raises(LogGap) as error:
            route(build.view(*facts, gone), HERE, 50)
        assert (error.value.start, error.value.end) == (50, 179)
