"""When a listing of groups counts as complete: no coordinator moved during it, and each shows all that it read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.twins.coordinating_brokers import TOPIC_REFUSED, UNKNOWN_TOPIC, CoordinatingBrokers, TwinCoordinator
from tierstate.broker.administration import all_committed
from tierstate.broker.groups import read_groups


def why_incomplete(brokers: Any) -> str:
    why = read_groups(brokers, ["orders"])["orders"].why_incomplete()
    assert "; ".join(all_committed(brokers)[1]) == (why or ""), "a backup has the same gap"
    return why or ""


def two_coordinators() -> CoordinatingBrokers:
    return CoordinatingBrokers(TwinCoordinator(1, "readers"), TwinCoordinator(2, "writers"))


def test_a_listing_is_complete_if_every_coordinator_was_there_all_the_time() -> None:
    assert not why_incomplete(two_coordinators())


def test_a_listing_is_incomplete_while_a_coordinator_hides_groups_behind_its_high_watermark() -> None:
    brokers = two_coordinators()
    brokers.coordinators[1].confirmed = False
    assert "1 of 2 coordinators" in why_incomplete(brokers)
    brokers.coordinators[1].confirmed = True
    assert not why_incomplete(brokers)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_listing_is_incomplete_if_a_coordinator_moves_to_a_broker_that_was_listed(hidden: bool) -> None:
    brokers = two_coordinators()
    brokers.topic_errors = {1: TOPIC_REFUSED, 2: TOPIC_REFUSED} if hidden else {}

    def move(broker: int) -> None:
        brokers.coordinators[1].broker = 3 - broker

    brokers.before_list = move
    assert "coordinators moved" in why_incomplete(brokers)


def test_a_listing_is_incomplete_if_a_coordinator_moves_away_and_back_during_it() -> None:
    brokers = two_coordinators()

    def move_twice(broker: int) -> None:
        brokers.coordinators[0].epoch += 2

    brokers.before_list = move_twice
    assert "1 of 2 coordinators" in why_incomplete(brokers)


def test_there_are_no_groups_if_no_broker_knows_the_topic_of_their_offsets() -> None:
    brokers = CoordinatingBrokers()
    brokers.topic_errors = {1: UNKNOWN_TOPIC, 2: UNKNOWN_TOPIC}
    assert not why_incomplete(brokers)


def test_one_broker_that_does_not_know_the_topic_of_the_offsets_proves_nothing() -> None:
    brokers = CoordinatingBrokers(TwinCoordinator(3, "readers"))
    brokers.topic_errors = {1: UNKNOWN_TOPIC}
    assert "groups may be missing" in why_incomplete(brokers)


def test_a_coordinator_behind_brokers_that_hide_the_topic_as_unknown_counts() -> None:
    brokers = two_coordinators()
    brokers.topic_errors = {1: UNKNOWN_TOPIC, 2: UNKNOWN_TOPIC}
    assert not why_incomplete(brokers)
    brokers.coordinators[1].confirmed = False
    assert "128 of 256 coordinators" in why_incomplete(brokers)


def test_an_answer_without_brokers_lists_nothing() -> None:
    brokers: Any = CoordinatingBrokers(brokers=())
    brokers.topic_errors = {0: UNKNOWN_TOPIC}
    assert "groups may be missing" in "; ".join(all_committed(brokers)[1])
