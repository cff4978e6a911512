"""The parameters of a fetch from a partition's log, by the leader or by a gateway in front of the leader."""

from __future__ import annotations

from dataclasses import dataclass

from ..state.epochs import LeaderEpoch
from ..state.ids import TopicId
from ..state.offsets import Offset
from ..state.routing import Isolation


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """``wait_ms``: milliseconds that the broker may wait for the first byte. ``topic_id``: refuse any other topic."""

    topic: str
    partition: int
    offset: Offset
    max_bytes: int
    isolation: Isolation
    leader_epoch: LeaderEpoch | None = None
    wait_ms: int = 0
    topic_id: TopicId | None = None
