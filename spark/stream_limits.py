"""The size of one micro-batch: ``maxOffsetsPerTrigger``, ``maxBytesPerTrigger``, ``minOffsetsPerTrigger``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..state.coverage import Coverage
from ..state.offsets import Offset
from .positions import TopicPartition

Extents = Mapping[TopicPartition, tuple[Offset, Offset]]
"""The offsets that each partition has to read: the first, and the one after the last."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a batch; None: no limit. ``max_delay_s``: how long a batch waits for ``min_offsets``."""

    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Log bytes of one partition: exact for copied offsets, ``local_rate`` (bytes an offset) estimates the others."""

    coverage: Coverage
    local_rate: float

    def between(self, start: Offset, end: Offset) -> int:
        return int(sum(count * rate for count, rate in self._stretches(start, end)))

    def after(self, start: Offset, end: Offset, most: int) -> Offset:
        """Return the end of about ``most`` bytes from ``start`` on: at least one offset, at most ``end``."""
        position, left = start, float(most)
        for count, rate in self._stretches(start, end):
            if count * rate > left:
                return Offset(max(position + int(left / rate), start + 1))
            position, left = Offset(position + count), left - count * rate
        return end

    def _stretches(self, start: Offset, end: Offset) -> Iterator[tuple[int, float]]:
        """Yield stretches as the number of offsets and the bytes of each."""
        while start < end:
            owner = self.coverage.at(start)
            if owner is not None:
                stop = min(end, owner.offsets.end + 1)
                rate = owner.segment.log_bytes / len(owner.segment.offsets)
            else:
                following = self.coverage.next_start(start)
                stop, rate = end if following is None else min(end, following), self.local_rate
            yield stop - start, rate
            start = Offset(stop)


def by_offsets(extents: Extents, most: int) -> dict[TopicPartition, Offset]:
    """Return the ends of a batch of at most ``most`` offsets, divided by `shares`."""
    parts = shares({key: end - start for key, (start, end) in extents.items()}, most)
    return {key: Offset(min(start + parts[key], end)) for key, (start, end) in extents.items()}


def by_bytes(extents: Extents, sizes: Mapping[TopicPartition, Sizes], most: int) -> dict[TopicPartition, Offset]:
    """Return the ends of a batch of about ``most`` bytes of log, divided by `shares`."""
    parts = shares({key: sizes[key].between(*extent) for key, extent in extents.items()}, most)
    return {key: sizes[key].after(*extent, parts[key]) for key, extent in extents.items()}


def shares(left: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Divide ``most`` by what is left of each partition, at least 1 if any is, as Spark's Kafka source does
    (`KafkaMicroBatchStream.rateLimit`): no small partition starves, and all come to their ends together.
    """
    total = sum(left.values())
    return {key: max(1, most * size // total) if size > 0 else 0 for key, size in left.items()}
