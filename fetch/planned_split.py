"""The parts of a plan, which are sent to its readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..state.epochs import LeaderEpoch
from ..state.ids import TopicId
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import RemoteSegment


class Skipped(NamedTuple):
    """Offsets ``[start, end)`` of a partition that neither tier has, which a person accepted as lost."""

    partition: int
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a split: ``segment`` serves exactly ``offsets``. None: the local tier serves them."""

    offsets: OffsetRange
    segment: RemoteSegment | None


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """The records of ``[start, end)`` of one partition. ``parts`` cover it, ascending, except for `skipped` offsets.

    ``plan``: a gateway's name for the plan that contains the split; empty if no gateway made it.
    """

    topic: str
    topic_id: TopicId
    partition: int
    start: Offset
    end: Offset
    isolation: Isolation
    leader_epoch: LeaderEpoch | None
    parts: tuple[PlannedPart, ...]
    plan: str = ""

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Return the accepted gaps of this split, ascending."""
        starts = [*(part.offsets.start for part in self.parts), self.end]
        ends = [self.start, *(Offset(part.offsets.end + 1) for part in self.parts)]
        gaps = zip(ends, starts, strict=True)
        return tuple(Skipped(self.partition, start, end) for start, end in gaps if start < end)
