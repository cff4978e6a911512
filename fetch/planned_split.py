"""What a plan is made of, and what travels to whoever reads it."""

from __future__ import annotations

from dataclasses import dataclass

from ..state.epochs import LeaderEpoch
from ..state.ids import TopicId
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import RemoteSegment


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """``segment`` serves exactly ``offsets``; None: the local tier does."""

    offsets: OffsetRange
    segment: RemoteSegment | None


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """The records of ``[start, end)`` of one partition; ``parts`` cover it, ascending, without a gap.

    ``plan``: what a gateway calls the plan that it is of; empty: none made it.
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
