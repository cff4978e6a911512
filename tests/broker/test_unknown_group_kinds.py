"""A group of a kind that comes with a later Kafka: its position is unknown, so it holds every trim, by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.protocol.admin import ListGroupsRequest

from tierstate.broker.groups import read_groups

DESCRIBE_ALLOWED = {8}


class LaterBroker:
    """A `RawClient` of one broker. ``kind``: of its only group."""

    def __init__(self, kind: str) -> None:
        self._kind, self.asked = kind, list[str]()

    def metadata(self) -> Any:
        return SimpleNamespace(brokers={1: "broker"})

    def ask(self, broker: int, request: Any) -> Any:
        self.asked.append(type(request).__name__)
        group = SimpleNamespace(group_id="voters", group_type=self._kind)
        groups = [group] if isinstance(request, ListGroupsRequest) else []
        return SimpleNamespace(error_code=0, groups=groups, authorized_operations=DESCRIBE_ALLOWED)


def test_a_group_of_an_unknown_kind_is_a_problem_of_every_topic_unless_it_is_excluded() -> None:
    made: Any = LaterBroker("Quorum")
    groups = read_groups(made, ["orders"])["orders"]
    why = "group voters is of kind quorum, which this release does not know: what it has read is unknown"
    assert groups.why_incomplete() == why
    assert groups.why_incomplete(lambda group: group == "voters") is None


def test_a_group_of_a_known_kind_is_asked_for_its_members_and_offsets() -> None:
    made: Any = LaterBroker("Consumer")
    assert read_groups(made, ["orders"])["orders"].why_incomplete() is None
    assert made.asked[-2:] == ["ConsumerGroupDescribeRequest", "OffsetFetchRequest"]
