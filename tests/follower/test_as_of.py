"""The age of a view, as its tail asks for it in each iteration: cheaply, and never too late."""

from __future__ import annotations

import pytest

from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.as_of import MAX_AGE_MS, AsOf
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import PositionLost
from tierstate.state.view import MemoryView


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> MemoryView:
    return MemoryView(decode_fact)


@pytest.fixture
def as_of(clock: ManualClock, store: MemoryView) -> AsOf:
    age = AsOf(MemoryTierTopic(2, clock=clock), clock, range(2))
    age.begin(store)
    age.check(store)
    return age


def test_a_view_that_was_young_at_the_last_look_is_found_to_be_too_old(
    as_of: AsOf, store: MemoryView, clock: ManualClock
) -> None:
    clock.advance(MAX_AGE_MS / 1000)
    as_of.check(store)
    clock.advance(0.001)
    with pytest.raises(PositionLost, match="too long ago"):
        as_of.check(store)


def test_a_view_is_as_old_as_the_oldest_of_its_partitions(as_of: AsOf, store: MemoryView, clock: ManualClock) -> None:
    clock.advance(1000)
    store.mark_as_of(0, clock.now_ms())
    as_of.begin(store)
    as_of.check(store)
    clock.advance(MAX_AGE_MS / 1000 - 999)
    with pytest.raises(PositionLost, match="tier_partition=1"):
        as_of.check(store)


def test_a_view_whose_ends_are_reached_again_and_again_never_grows_old(
    as_of: AsOf, store: MemoryView, clock: ManualClock
) -> None:
    for _ in range(40):
        clock.advance(24 * 3600)
        as_of.check(store)
        as_of.keep_up(store, 0)
        assert len(as_of.reached(store)) == 2


def test_an_age_that_was_marked_by_a_clock_that_was_set_back_counts_from_there(
    as_of: AsOf, store: MemoryView, clock: ManualClock
) -> None:
    clock.advance(-MAX_AGE_MS / 2000)
    as_of.keep_up(store, 0)
    assert len(as_of.reached(store)) == 2
    clock.advance(MAX_AGE_MS / 1000 + 1)
    with pytest.raises(PositionLost, match="too long ago"):
        as_of.check(store)
