"""The growth of a partition over time, from few reads: enough to draw the partition on a time axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from ..log.batch import BatchHeader, iter_batches
from ..state.errors import TierstateError, UnknownTopic
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, Tier
from .look import Look

MOST_PAIRS = 64
"""The most pairs of one partition. A bar of the console has no space for more."""


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """``pairs`` ascend in offset and time. ``unavailable``: why the broker's part, or the beginning, is missing."""

    pairs: tuple[tuple[Offset, TimestampMs], ...]
    unavailable: str | None = None


def times_of(reader: Look, topic: str, partition: int) -> PartitionTimes:
    """Return pairs for the end of each remote segment, and for three batches: the first, the first local, and the last.

    If a record's time is earlier than the previous time, the previous time is used. Raises UnknownTopic.
    """
    owned = reader.view(topic, partition).coverage.owned
    pairs = {each.offsets.end: each.segment.max_timestamp for each in owned}
    start, unavailable = Offset(0), None
    try:
        bounds = reader.bounds(topic, partition)
        start = bounds.log_start if bounds.log_start is not None else bounds.local_start
        end = Offset(bounds.high_watermark - 1)
        samples: list[tuple[Offset, Callable[[list[BatchHeader]], int]]] = [
            (start, lambda headers: headers[0].first_timestamp),
            (bounds.local_start, lambda headers: headers[0].first_timestamp),
            (end, lambda headers: headers[-1].max_timestamp),
        ]
        for offset, time_of in samples if start <= end else ():
            piece = reader.fetch(
                topic, partition, offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED, tier=Tier.AUTO
            )
            headers = list(iter_batches(piece.data, source=f"{topic}-{partition}@{offset}"))
            if headers:
                pairs[offset] = TimestampMs(max(time_of(headers), pairs.get(offset, TimestampMs(-1))))
    except UnknownTopic:
        raise
    except TierstateError as error:  # what the view knows is still worth drawing
        unavailable = error.message
    sorted_pairs = sorted((offset, time) for offset, time in pairs.items() if offset >= start and time >= 0)
    times = accumulate((time for _, time in sorted_pairs), max)
    return PartitionTimes(
        thinned([(offset, time) for (offset, _), time in zip(sorted_pairs, times, strict=True)]), unavailable
    )


def thinned(pairs: list[tuple[Offset, TimestampMs]]) -> tuple[tuple[Offset, TimestampMs], ...]:
    """Return at most `MOST_PAIRS` of the pairs, evenly spread, with the first and the last pair."""
    if len(pairs) <= MOST_PAIRS:
        return tuple(pairs)
    last = len(pairs) - 1
    return tuple(pairs[at * last // (MOST_PAIRS - 1)] for at in range(MOST_PAIRS))
