"""A group of a kind that comes with a later Kafka: its position is unknown, so it holds every trim, by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from tierstate.broker.coordinators import OFFSETS_TOPIC
from tierstate.broker.groups import read_groups

DESCRIBE_ALLOWED, NOT_COORDINATOR = {8}, 16


class LaterBroker:
    """A `RawClient` of one broker. ``kind``: of its only group. ``stays``: requests for which it is the coordinator."""

    def __init__(self, kind: str) -> None:
        self._kind, self.asked, self.stays = kind, list[str](), 3

    def metadata(self, topics: object = ()) -> Any:
        offsets = SimpleNamespace(error=None, partitions={0: "partition"})
        return SimpleNamespace(brokers={1: "broker"}, topics={OFFSETS_TOPIC: offsets})

    def ask(self, broker: int, request: Any) -> Any:
        self.asked.append(type(request).__name__)
        groups: list[Any] = []
        if isinstance(request, ListGroupsRequest):
            groups = [SimpleNamespace(group_id="voters", group_type=self._kind)]
        elif isinstance(request, OffsetFetchRequest):
            self.stays -= 1
            code = 0 if self.stays >= 0 else NOT_COORDINATOR
            groups = [SimpleNamespace(group_id=each.group_id, error_code=code, topics=[]) for each in request.groups]
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
    assert made.asked[-3:] == ["ConsumerGroupDescribeRequest", *["OffsetFetchRequest"] * 2], "the last is for no group"


def test_a_listing_is_incomplete_if_a_coordinator_leaves_its_broker_meanwhile() -> None:
    made: Any = LaterBroker("Consumer")
    made.stays = 1
    assert "1 of 1 coordinators moved" in (read_groups(made, ["orders"])["orders"].why_incomplete() or "")
