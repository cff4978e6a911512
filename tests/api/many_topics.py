"""A reader with many topics, as a console must show them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.api.gateways import MemoryReader
from tierstate.fetch.piece import LogicalTopic
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import UnknownTopic
from tierstate.state.facts import LeaderElected, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.partition_view import PartitionView


class ManyTopics(MemoryReader):
    """All have the records of `MemoryReader`. ``paused``: a topic; ``in_trouble``: one with trouble in partition 1.

    ``agents``: the address of a topic's agent.
    """

    def __init__(
        self,
        partitions: dict[str, int],
        paused: str = "",
        in_trouble: str = "",
        agents: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.partitions, self.paused, self.in_trouble, self.agents = partitions, paused, in_trouble, agents

    def topics(self) -> list[str]:
        return list(self.partitions)

    def topic(self, name: str) -> LogicalTopic:
        if name not in self.partitions:
            raise UnknownTopic("no such topic", topic=name)
        return LogicalTopic(name, TopicId.of(name.encode().ljust(16, b"-")[:16]), self.partitions[name])

    def view(self, topic: str, partition: int) -> PartitionView:
        place = TopicIdPartition(self.topic(topic).topic_id, partition)
        orders: tuple[OperatorOrder, ...] = ()
        if topic == self.paused:
            identity = FactId.of(b"an order of one!")
            at = TimestampMs(1_767_225_600_000)
            orders = (OperatorOrder(place, identity, OrderKind.PAUSE, None, False, "ann@desk", at, Lineage()),)
        wrong = ("a fact of version 9",) if topic == self.in_trouble and partition == 1 else ()
        leader = None
        if topic in self.agents:
            at = TimestampMs(1_767_225_600_000)
            id, epoch, broker = FactId.of(b"a term of someone"[:16]), LeaderEpoch(0), BrokerId(7)
            leader = LeaderElected(place, topic, epoch, id, broker, self.agents[topic], Lineage(), Offset(0), at)
        return PartitionView(place, topic, orders=orders, degraded=wrong, leader=leader)
