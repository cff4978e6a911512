"""The size of one micro-batch: ``maxOffsetsPerTrigger``, ``maxBytesPerTrigger``, ``minOffsetsPerTrigger``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..state.coverage import Coverage
from ..state.offsets import Offset
from .positions import TopicPartition

Extents = Mapping[TopicPartition, tuple[Offset, Offset]]
"""The unread offsets ``[start, end)`` of each partition."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a micro-batch; None: no limit. ``max_delay_s``: seconds that a batch waits for ``min_offsets``."""

    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Estimates log bytes: the mean of their segment for copied offsets, ``local_rate`` bytes each for the others."""

    coverage: Coverage
    local_rate: float

    def between(self, start: Offset, end: Offset) -> int:
        return int(sum(count * rate for count, rate in self._stretches(start, end)))

    def after(self, start: Offset, end: Offset, most: int) -> Offset:
        """Return the exclusive end of about ``most`` bytes from ``start``: at least ``start + 1``, at most ``end``."""
        position, left = start, float(most)
        for count, rate in self._stretches(start, end):
            if count * rate > left:
                return Offset(max(position + int(left / rate), start + 1))
            position, left = Offset(position + count), left - count * rate
        return end

    def _stretches(self, start: Offset, end: Offset) -> Iterator[tuple[int, float]]:
        """Yield ``(number of offsets, bytes per offset)`` of the consecutive parts of ``[start, end)``."""
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
    """Return the ends of a batch of about ``most`` offsets, divided by `shares`, which can exceed ``most``."""
    parts = shares({key: end - start for key, (start, end) in extents.items()}, most)
    return {key: Offset(min(start + parts[key], end)) for key, (start, end) in extents.items()}


def by_bytes(extents: Extents, sizes: Mapping[TopicPartition, Sizes], most: int) -> dict[TopicPartition, Offset]:
    """Return the ends of a batch of about ``most`` bytes of log, divided by `shares`."""
    parts = shares({key: sizes[key].between(*extent) for key, extent in extents.items()}, most)
    return {key: sizes[key].after(*extent, parts[key]) for key, extent in extents.items()}


def shares(left: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Divide ``most`` in proportion to ``left``, each partition's unread size. Each nonempty partition gets at least 1,
    so the sum can exceed ``most``. As in Spark's Kafka source (`KafkaMicroBatchStream.rateLimit`), no small partition
    starves, and all partitions reach their ends together.
    """
    total = sum(left.values())
    return {key: max(1, most * size // total) if size > 0 else 0 for key, size in left.items()}
