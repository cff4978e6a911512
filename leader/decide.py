"""What should be done about a partition now. Pure: a view, what was observed locally, a policy → a decision.

Thirty seconds of reading tell why something is not done: every "no" carries its reason, and `status.py` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..broker.topics import TopicConfig
from ..state.facts import OrderKind
from ..state.offsets import Offset, TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment, TopicRetention
from ..state.routing import LocalBounds
from .candidates import CopyCandidate, NothingToCopy, next_candidate
from .trim_rule import NoTrim, TrimBefore, TrimPolicy, trim_before


@dataclass(frozen=True, slots=True)
class Observed:
    """What the broker and its disk said. ``holds`` None: consumer groups could not be listed completely."""

    segments: tuple[LocalSegment, ...]
    bounds: LocalBounds
    config: TopicConfig
    holds: Mapping[str, Offset] | None
    drift: str | None = None
    """How the tier-state topic's configuration differs from what is safe."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions depend on; milliseconds."""

    copy_lag_ms: int
    trim_delay_ms: int
    allow_unclean: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What to copy and how far to trim, or why not."""

    copy: CopyCandidate | NothingToCopy
    trim: TrimBefore | NoTrim

    @property
    def idle(self) -> bool:
        return isinstance(self.copy, NothingToCopy) and isinstance(self.trim, NoTrim)


def refusal(config: TopicConfig) -> str | None:
    """Why a topic cannot be tiered at all; None when it can. (Internal topics are never hosted: `open.py`.)"""
    if "compact" in config.cleanup_policy:
        return "compacted topic"
    if config.remote_storage_enable:
        return "remote.storage.enable=true: Kafka tiers it itself"
    return None


def standing_order(view: PartitionView) -> str | None:
    """The newest of pause, resume and disable, when it stops copying and trimming."""
    orders = [order for order in view.orders if order.kind is not OrderKind.DELETE_RECORDS]
    if not orders:
        return None
    newest = orders[-1]  # by position in the topic: the clocks of those who ordered do not count
    return None if newest.kind is OrderKind.RESUME else f"{newest.kind.value} ordered by {newest.issued_by}"


def decide(view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs) -> Decision:
    """Copy first: trimming waits for what is copied, never the other way round."""
    stopped = standing_order(view)
    if stopped is not None:
        return Decision(NothingToCopy(stopped), NoTrim(stopped))
    if view.degraded:
        return Decision(NothingToCopy(f"degraded: {view.degraded[0]}"), NoTrim(f"degraded: {view.degraded[0]}"))
    copy = next_candidate(view, seen.bounds, seen.segments, now, policy.copy_lag_ms)
    if seen.drift is not None:
        return Decision(copy, NoTrim(f"the tier-state topic is not safe any more: {seen.drift}"))
    if seen.holds is None:
        return Decision(copy, NoTrim("consumer groups could not be listed completely"))
    config = seen.config
    retention = TopicRetention.of(
        config.retention_ms, config.retention_bytes, config.local_retention_ms, config.local_retention_bytes
    )
    trim_policy = TrimPolicy(policy.trim_delay_ms, policy.allow_unclean, config.unclean_leader_election_enable)
    return Decision(copy, trim_before(view, seen.bounds, seen.segments, retention, trim_policy, seen.holds, now))
