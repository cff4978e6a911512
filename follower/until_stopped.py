"""A tier-state topic for work that must end soon after a stop is requested: each poll checks for the stop first."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..broker.tier_topic import AppendTime, TierBatch, TierReader, TierTopic
from ..runtime.watchdog import alive
from ..state.errors import Unavailable
from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor


@dataclass(frozen=True, slots=True)
class UntilStopped:
    """A `TierTopic` whose readers raise Unavailable once ``stop`` is set. Other calls go to ``topic``."""

    topic: TierTopic
    stop: threading.Event

    @property
    def topic_id(self) -> str:
        return self.topic.topic_id

    @property
    def mapped_partitions(self) -> int:
        return self.topic.mapped_partitions

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        return self.topic.append(tier_partition, key, value)

    @property
    def append_times(self) -> Mapping[int, AppendTime]:
        return self.topic.append_times

    def end(self, tier_partition: int) -> Position:
        return self.topic.end(tier_partition)

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return self.topic.ends(tier_partitions)

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        return self.topic.starts(tier_partitions)

    def position_at(self, tier_partition: int, timestamp_ms: TimestampMs) -> Position:
        return self.topic.position_at(tier_partition, timestamp_ms)

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        return self.topic.anchor_at(tier_partition, position)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        return _Reader(self.topic.reader(positions, epochs), self.stop)

    def problems(self) -> list[str]:
        return self.topic.problems()

    def current_topic_id(self) -> str:
        return self.topic.current_topic_id()

    def close(self) -> None:
        """Do nothing: the caller that opened the topic closes it."""


@dataclass(frozen=True, slots=True)
class _Reader:
    reader: TierReader
    stop: threading.Event

    def poll(self, timeout: float) -> list[TierBatch]:
        if self.stop.is_set():
            raise Unavailable("this process stops")
        alive()  # tells the watchdog that a long replay has not stalled
        return self.reader.poll(timeout)

    def close(self) -> None:
        self.reader.close()
