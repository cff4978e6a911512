"""What should be done about a partition now. Pure: a view, what was observed locally, a policy → a decision.

Thirty seconds of reading tell why something is not done: every "no" carries its reason, and `status.py` shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..broker.topics import TopicConfig
from ..state.epochs import Lineage
from ..state.facts import OrderKind
from ..state.ids import RemoteSegmentId
from ..state.offsets import Offset, Position, TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment, TopicRetention
from ..state.routing import LocalBounds
from ..state.segment import Term
from .candidates import CopyCandidate, NothingToCopy, next_candidate
from .erase_rule import Erase, NothingToErase, next_erasure
from .expire_rule import (
    AdvanceLogStart,
    NoExpiry,
    RemoveObjects,
    StartDelete,
    next_delete,
    next_log_start,
    next_removal,
)
from .orders import CutLocal, NoCut, next_cut
from .sweep_rule import NoSweep, failed_attempt, next_sweep
from .trim_rule import NoTrim, TrimBefore, TrimPolicy, trim_before


@dataclass(frozen=True, slots=True)
class Observed:
    """What the broker and its disk said.

    ``epochs``: its leader epoch checkpoint. ``holds`` None: consumer groups could not be listed completely.
    """

    segments: tuple[LocalSegment, ...]
    epochs: Lineage
    bounds: LocalBounds
    config: TopicConfig
    holds: Mapping[str, Offset] | None
    drift: str | None = None
    """How the tier-state topic's configuration differs from what is safe."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions depend on; milliseconds, and seconds of this process's own clock."""

    copy_lag_ms: int
    trim_delay_ms: int
    allow_unclean: bool
    expire_grace_ms: int = 60_000
    sweep_grace_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What only this process knows: its term, how long it has seen what abandoned, what failed lately, the archive.

    ``archived_to``: what is below is archived; None: no archive is kept. ``failed``: segments whose removal failed and
    is tried after all others; ``put_off``: those of them for which it is too early.
    """

    term: Term | None = None
    abandoned: Mapping[RemoteSegmentId, float] = field(default_factory=dict)
    put_off: Collection[RemoteSegmentId] = ()
    archived_to: Position | None = None
    monotonic: float = 0.0
    failed: Collection[RemoteSegmentId] = ()


class ActKind(StrEnum):
    """What an agent does about a partition, in turns."""

    COPY = "copy"
    TRIM = "trim"
    EXPIRE = "expire"
    SWEEP = "sweep"
    ERASE = "erase"


Intent = CopyCandidate | TrimBefore | AdvanceLogStart | CutLocal | StartDelete | RemoveObjects | Erase


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer for each kind of act: what is to be done, or why nothing is."""

    copy: CopyCandidate | NothingToCopy
    trim: TrimBefore | NoTrim
    expire: AdvanceLogStart | CutLocal | StartDelete | RemoveObjects | NoExpiry | NoCut
    sweep: StartDelete | NoSweep
    erase: Erase | NothingToErase

    @property
    def idle(self) -> bool:
        return not self.intents

    @property
    def intents(self) -> dict[ActKind, Intent]:
        """What is to be done."""
        answers = {
            ActKind.COPY: self.copy,
            ActKind.TRIM: self.trim,
            ActKind.EXPIRE: self.expire,
            ActKind.SWEEP: self.sweep,
            ActKind.ERASE: self.erase,
        }
        return {kind: answer for kind, answer in answers.items() if isinstance(answer, Intent)}


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


def is_paused(view: PartitionView) -> bool:
    """A pause stops everything; a disabled partition still expires, is swept and erased."""
    orders = [order for order in view.orders if order.kind is not OrderKind.DELETE_RECORDS]
    return bool(orders) and orders[-1].kind is OrderKind.PAUSE


def decide(
    view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, memory: Memory | None = None
) -> Decision:
    """Each kind for itself; what they share is that nothing goes while anything is in doubt."""
    memory = memory or Memory()
    stopped = standing_order(view) or (f"degraded: {view.degraded[0]}" if view.degraded else None)
    unsafe = f"the tier-state topic is not safe any more: {seen.drift}" if seen.drift is not None else None
    if stopped is not None:
        copy: CopyCandidate | NothingToCopy = NothingToCopy(stopped)
    else:
        copy = next_candidate(view, seen.bounds, seen.segments, seen.epochs, now, policy.copy_lag_ms)
    trim = _trim(view, seen, policy, now, stopped or unsafe)
    kept = unsafe or (stopped if is_paused(view) else None)
    if kept is not None:
        return Decision(copy, trim, NoExpiry(kept), NoSweep(kept), NothingToErase(kept))
    return Decision(
        copy,
        trim,
        _expire(view, seen, policy, now, memory),
        _sweep(view, seen, policy, memory),
        _erase(view, seen, now, memory),
    )


def _retention(seen: Observed) -> TopicRetention:
    config = seen.config
    return TopicRetention.of(
        config.retention_ms, config.retention_bytes, config.local_retention_ms, config.local_retention_bytes
    )


def _trim(
    view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, stopped: str | None
) -> TrimBefore | NoTrim:
    if stopped is not None:
        return NoTrim(stopped)
    if seen.holds is None:
        return NoTrim("consumer groups could not be listed completely")
    rules = TrimPolicy(policy.trim_delay_ms, policy.allow_unclean, seen.config.unclean_leader_election_enable)
    return trim_before(view, seen.bounds, seen.segments, _retention(seen), rules, seen.holds, now)


def _expire(
    view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, memory: Memory
) -> AdvanceLogStart | CutLocal | StartDelete | RemoveObjects | NoExpiry | NoCut:
    """The log start first; then what it condemned, oldest first. The reason shown is retention's."""
    moved = next_log_start(view, seen.bounds, seen.segments, _retention(seen), now)
    if isinstance(moved, AdvanceLogStart):
        return moved
    later = (
        next_cut(view, seen.bounds),
        next_delete(view),
        next_removal(view, now, policy.expire_grace_ms, memory.failed),
        next_removal(view, now, policy.expire_grace_ms, memory.put_off),
    )
    return next((each for each in later if isinstance(each, Intent)), moved)


def _sweep(view: PartitionView, seen: Observed, policy: Policy, memory: Memory) -> StartDelete | NoSweep:
    failed = failed_attempt(view, memory.term)
    if failed is not None:
        return failed
    return next_sweep(view, seen.bounds, (), memory.abandoned, memory.monotonic, policy.sweep_grace_s)


def _erase(view: PartitionView, seen: Observed, now: TimestampMs, memory: Memory) -> Erase | NothingToErase:
    if memory.term is None:
        return NothingToErase("no term of this agent is in force")
    return next_erasure(view, memory.term, seen.bounds.local_start, memory.archived_to, now)
