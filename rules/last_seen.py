"""What the broker had when this process last looked, and has no more: how old it was at most.

Kafka's own retention takes a segment that was never rolled, so never copied: of a topic on which little is written,
that is every one. No tier has those offsets then, and nothing remote follows them that could expire: what is known of
their age is what was seen while they were there, in this leader epoch: after another election it may be of a branch
that was lost. Without that, in a process that began later, nothing is concluded.
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
    """No record below ``before`` is younger than ``newest``."""

    before: Offset
    newest: TimestampMs


class LastSeen:
    """Of one partition, by one thread at a time."""

    def __init__(self) -> None:
        self._there: Aged | None = None
        self._gone: Aged | None = None
        self._epoch: LeaderEpoch | None = None

    def look(self, segments: Sequence[LocalSegment], bounds: LocalBounds, epoch: LeaderEpoch | None) -> Aged | None:
        """``bounds`` were asked for before ``segments`` were listed. The newest of what left the broker as a whole.

        ``epoch``: the last of the broker's checkpoint.
        """
        if epoch != self._epoch:
            self._there = self._gone = None
            self._epoch = epoch
        if self._there is not None and bounds.local_start >= self._there.before:
            older = self._gone.newest if self._gone is not None else self._there.newest
            self._gone, self._there = replace(self._there, newest=max(older, self._there.newest)), None
        whole = bool(segments) and segments[0].base_offset <= bounds.local_start  # else something left in between
        if whole and bounds.high_watermark > bounds.local_start:
            self._there = Aged(bounds.high_watermark, LocalSegments.of(segments).newest)
        return self._gone
