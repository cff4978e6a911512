"""A view's store and a tier-state topic that fail on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_topic import TierReader
from tierstate.state.errors import BrokerUnavailable, DiskFull, TierstateError
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Position
from tierstate.state.view import Anchor, Entry, MemoryView, SecondValue

NO_ROOM = DiskFull("the disk of the view has no room left")


class MoodyView(MemoryView):
    """Raises ``error`` instead of applying, unless it is None."""

    error: TierstateError | None = None

    def apply(
        self,
        tier_partition: int,
        entries: Iterable[Entry],
        following: Position,
        epoch: int = -1,
        dropped: Collection[TopicIdPartition] = (),
        anchor: Anchor | None = None,
    ) -> list[SecondValue]:
        if self.error is not None:
            raise self.error
        return super().apply(tier_partition, entries, following, epoch, dropped, anchor)


class MoodyTopic(MemoryTierTopic):
    """A topic whose broker may be away, and whose name may be another topic's."""

    away = False
    other: str | None = None

    def end(self, tier_partition: int) -> Position:
        if self.away:
            raise BrokerUnavailable("the tier-state topic's offsets are unknown", tier_partition=tier_partition)
        return super().end(tier_partition)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        if self.away:
            raise BrokerUnavailable("Kafka does not answer")
        return super().reader(positions, epochs)

    def current_topic_id(self) -> str:
        return self.other or super().current_topic_id()
