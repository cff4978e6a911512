"""A growing view reads only those tier-state partitions that a caller requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.opening.connection import Advance, Connection
from tierstate.app.opening.growing_view import GrowingView
from tierstate.runtime.settings import Settings
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.keys import tier_partition_of

MAPPED = 4
TOPIC = TopicId.of(bytes(16))
PLACES = [TopicIdPartition(TOPIC, number) for number in range(12)]
NUMBERS = {place: tier_partition_of(place, MAPPED) for place in PLACES}


@pytest.fixture
def read() -> list[int]:
    """Return a list to which each replay adds the number of its tier-state partitions."""
    return []


@pytest.fixture
def view(read: list[int]) -> Iterator[GrowingView]:
    @contextmanager
    def progress(label: str, total: int | None = None, /) -> Iterator[Advance]:
        read.append(total or 0)
        yield lambda amount: None

    with Connection(Settings(), progress=progress) as connection:
        vars(connection)["topic"] = MemoryTierTopic(MAPPED)
        yield connection.growing_view()


def test_nothing_is_read_before_somebody_asks(view: GrowingView, read: list[int]) -> None:
    assert view.tier_partition(PLACES[0]) == NUMBERS[PLACES[0]]
    assert read == []


def test_a_partition_costs_the_tier_state_partition_it_is_in_and_once(view: GrowingView, read: list[int]) -> None:
    for _ in range(2):
        view.partition(PLACES[0])
        view.facts(PLACES[0])
        view.require_fresh(NUMBERS[PLACES[0]], 1.0)
        assert view.age_s(NUMBERS[PLACES[0]]) is not None
    assert read == [1]


def test_partitions_that_are_wanted_together_are_read_together_and_what_is_known_is_not_read_again(
    view: GrowingView, read: list[int]
) -> None:
    first = [place for place in PLACES if NUMBERS[place] in (0, 1)]
    view.want(first)
    view.want(first)
    view.want(PLACES)
    assert read == [2, 2]


def test_who_asks_for_all_partitions_has_all_of_it_read(view: GrowingView, read: list[int]) -> None:
    view.partition(PLACES[0])
    assert view.partitions() == []
    assert read == [1, MAPPED - 1]
