"""Observability is handed out as values: acts announce what happened, listeners count, log or test it.

A listener is any callable that takes one event. `metrics.py` counts them, `logs.py` prints them, tests collect them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class SegmentCopied:
    """A segment became readable remotely. ``seconds`` from `copy-started` to `copy-finished` applied."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    log_bytes: int
    object_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """A copy attempt ended without a segment."""

    partition: TopicIdPartition
    topic: str
    offsets: OffsetRange
    error: str
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class LocalTrimmed:
    """The broker's log start moved to ``offset``."""

    partition: TopicIdPartition
    topic: str
    offset: Offset


@dataclass(frozen=True, slots=True)
class TrimRefused:
    """The local tier was not trimmed, and why."""

    partition: TopicIdPartition
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class TermStarted:
    """A term began and its `LeaderElected` is in the view."""

    partition: TopicIdPartition
    topic: str
    term: str


@dataclass(frozen=True, slots=True)
class TermEnded:
    """A term stopped, and why (fenced, unknown append outcome, broker no longer leads)."""

    partition: TopicIdPartition
    topic: str
    term: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionRefused:
    """A partition is not tiered, and why."""

    partition: TopicIdPartition
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class ViewRebuilt:
    """A follower threw its view away and replays the topic, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class FactsApplied:
    """A follower applied facts of one tier-state partition."""

    tier_partition: int
    facts: int
    position: int


@dataclass(frozen=True, slots=True)
class RemoteFetched:
    """Bytes read from the object store for readers."""

    object_key: str
    bytes: int
    seconds: float


Event = (
    SegmentCopied
    | CopyFailed
    | LocalTrimmed
    | TrimRefused
    | TermStarted
    | TermEnded
    | PartitionRefused
    | ViewRebuilt
    | FactsApplied
    | RemoteFetched
)

Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that nobody listens to."""


def fan_out(*listeners: Listener) -> Listener:
    """One listener that tells several."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
