"""Remembers the age of records that the broker had at an earlier look and no longer has.

Kafka's own retention deletes segments that were never rolled, so never copied; in a topic with few writes, all of them.
Then no tier has those offsets, and no remote segment follows them that could expire. Their age is only known from looks
at the time, in this leader epoch: after another election it may describe a branch that was lost. A process that started
later has not seen them and concludes nothing.
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
    """The age of a part of the log: no record below ``before`` is younger than ``newest``."""

    before: Offset
    newest: TimestampMs


class LastSeen:
    """The memory for one partition. Not thread-safe."""

    def __init__(self) -> None:
        self._there: Aged | None = None
        self._gone: Aged | None = None
        self._epoch: LeaderEpoch | None = None

    def look(self, segments: Sequence[LocalSegment], bounds: LocalBounds, epoch: LeaderEpoch | None) -> Aged | None:
        """Return the age of what left the broker since earlier looks; None if unknown.

        ``bounds`` were read before ``segments`` were listed. ``epoch``: the last one of the broker's checkpoint.
        """
        if epoch != self._epoch:
            self._there = self._gone = None
            self._epoch = epoch
        if self._there is not None and bounds.local_start >= self._there.before:
            older = self._gone.newest if self._gone is not None else self._there.newest
            self._gone, self._there = replace(self._there, newest=max(older, self._there.newest)), None
        whole = bool(segments) and segments[0].base_offset <= bounds.local_start  # else records were deleted in between
        if whole and bounds.high_watermark > bounds.local_start:
            self._there = Aged(bounds.high_watermark, LocalSegments.of(segments).newest)
        return self._gone
