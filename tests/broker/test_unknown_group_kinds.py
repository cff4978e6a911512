"""A group of a kind that comes with a later Kafka: its position is unknown, so it holds every trim, by its name."""

from __future__ import annotations

from typing import Any

from tests.twins.coordinating_brokers import CoordinatingBrokers, TwinCoordinator
from tierstate.broker.groups import read_groups


def test_a_group_of_an_unknown_kind_is_a_problem_of_every_topic_unless_it_is_excluded() -> None:
    made: Any = CoordinatingBrokers(TwinCoordinator(1, "voters", "Quorum"))
    groups = read_groups(made, ["orders"])["orders"]
    why = "group voters is of kind quorum, which this release does not know: what it has read is unknown"
    assert groups.why_incomplete() == why
    assert groups.why_incomplete(lambda group: group == "voters") is None


def test_a_group_of_a_known_kind_is_asked_for_its_members_and_offsets() -> None:
    made: Any = CoordinatingBrokers(TwinCoordinator(1, "voters", "Consumer"))
    assert read_groups(made, ["orders"])["orders"].why_incomplete() is None
    assert "ConsumerGroupDescribeRequest" in made.requests
    assert made.requests.count("OffsetFetchRequest") == 2 * 2 + 1, "two prove, at each broker"
