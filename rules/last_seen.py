"""Remembers the age of records that the broker had at an earlier observation and no longer has.

Kafka's own retention deletes segments that were never rolled, and so never copied: in a topic with few writes, all of
them. Then no tier has their offsets, and no remote segment follows that could expire. The age of the records is known
only from observations in the same leader epoch: after another election, they may describe a lost branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..state.epochs import LeaderEpoch
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, TimestampMs
from ..state.routing import LocalBounds


@dataclass(frozen=True, slots=True)
class Aged:
    """The age of the start of the log: no record below ``before`` (exclusive) has a timestamp above ``newest``."""

    before: Offset
    newest: TimestampMs


class LastSeen:
    """The observations of one partition. Not thread-safe."""

    def __init__(self) -> None:
        self._present: Aged | None = None
        self._departed: Aged | None = None
        self._epoch: LeaderEpoch | None = None

    def look(self, segments: Sequence[LocalSegment], bounds: LocalBounds, epoch: LeaderEpoch | None) -> Aged | None:
        """Record an observation. Return the age of the records that left the broker since earlier ones, or None.

        ``bounds`` were read before ``segments`` were listed. If ``epoch``, the last one of the broker's checkpoint, is
        new, all earlier observations are discarded.
        """
        if epoch != self._epoch:
            self._present = self._departed = None
            self._epoch = epoch
        if self._present is not None and bounds.local_start >= self._present.before:
            departed_newest = self._departed.newest if self._departed is not None else self._present.newest
            newest = max(departed_newest, self._present.newest)
            self._departed, self._present = replace(self._present, newest=newest), None
        whole = bool(segments) and segments[0].base_offset <= bounds.local_start  # else records were deleted in between
        if whole and bounds.high_watermark > bounds.local_start:
            self._present = Aged(bounds.high_watermark, LocalSegments.of(segments).newest)
        return self._departed
