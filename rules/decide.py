"""Decides what to do about a partition now. Pure: a view, local observations, a policy → a decision.

If a step is not taken, the decision contains the reason, and `status.py` shows the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..state.facts import OrderKind
from ..state.ids import RemoteSegmentId
from ..state.offsets import Offset, Position, TimestampMs, moment
from ..state.partition_view import PartitionView
from ..state.retention import TopicConfig, TopicRetention
from ..state.segment import Term
from .candidates import CopyCandidate, next_candidate
from .clocks import NO_DELETION, Clocks
from .erase import Erase, next_erasure
from .expire import (
    KEEPS_ALL,
    AdvanceLogStart,
    Aged,
    RemoveObjects,
    StartDelete,
    is_ordered,
    next_delete,
    next_log_start,
    next_removal,
)
from .missing import MissingObject, still_missing, why_missing
from .observed import Observed
from .orders import CutLocal, next_cut, standing
from .reasons import Reason, Why
from .sweep import SweepOrphans, failed_attempt, next_orphans, next_sweep
from .trim import NoTrim, TrimBefore, TrimPolicy, trim_before, why_degraded


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions depend on: in milliseconds (``_ms``) or seconds of the process's clock (``_s``).

    ``trims``: False for an archive, whose local segments only Kafka's retention deletes.
    """

    copy_lag_ms: int
    trim_delay_ms: int
    allow_unclean: bool
    expire_grace_ms: int = 60_000
    sweep_grace_s: float = 86_400.0
    trims: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """Information that only this process has: its term, when segments were abandoned, recent failures, the archive.

    ``archived_to``: positions below it are archived; None if no archive is kept. ``failed``: segments whose removal
    failed and is retried after all others. ``put_off``: the failed segments whose retry is not due. ``pinned_s``: for
    how many seconds the last stable offset has not moved, below the high watermark. ``too_old``: the base offset of a
    segment that cannot be copied, and the reason. ``gone``: the age of the records that the broker no longer has.
    """

    term: Term | None = None
    abandoned: Mapping[RemoteSegmentId, float] = field(default_factory=dict)
    put_off: Collection[RemoteSegmentId] = ()
    archived_to: Position | None = None
    monotonic: float = 0.0
    failed: Collection[RemoteSegmentId] = ()
    orphans: Collection[str] = ()
    """Objects that this process saw condemned for the whole grace (`leader/sweeper.py`)."""
    pinned_s: float = 0.0
    too_old: tuple[Offset, Why] | None = None
    gone: Aged | None = None
    missing: Collection[MissingObject] = ()
    """Objects of readable segments that were missing at the last listing."""
    clocks: Clocks | None = None
    """The clocks that ages are computed with. If it is None, the time that the caller passes is trusted."""
    lost: Why | None = None
    """Why nothing is deleted until a recovery: facts are lost, and the bucket shows which ones (`lost_facts.py`)."""

    @property
    def clock_doubt(self) -> Why | None:
        """Return the reason to delete nothing by age, or None. Before the first term, only the machine's clock may be
        known: it decides whether a term begins, and the append that begins the term returns the brokers' time.
        """
        if self.clocks is None:
            return None
        return self.clocks.apart if self.term is None else self.clocks.doubt


class OperationKind(StrEnum):
    """The kinds of steps that an agent takes for a partition, one at a time."""

    COPY = "copy"
    TRIM = "trim"
    EXPIRE = "expire"
    SWEEP = "sweep"
    ERASE = "erase"


Intent = CopyCandidate | TrimBefore | AdvanceLogStart | CutLocal | StartDelete | RemoveObjects | SweepOrphans | Erase


Expiry = AdvanceLogStart | CutLocal | StartDelete | RemoveObjects | Why
ORDERED = frozenset({Reason.ORDER_WAITS, Reason.ORDER_LOST})
_ARCHIVE = (
    "trim.enabled=false, an archive: only Kafka's retention deletes local segments, and expire.retention decides about "
    "the remote tier"
)
RETENTION_SAYS = frozenset({Reason.NO_LOG_START, Reason.NOTHING_REMOTE, Reason.NOT_COPIED, Reason.RETENTION_KEEPS})


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer for each kind of step: the step to take, or the reason to take none."""

    copy: CopyCandidate | Why
    trim: TrimBefore | NoTrim
    expire: Expiry
    sweep: StartDelete | SweepOrphans | str
    erase: Erase | str

    @property
    def idle(self) -> bool:
        return not self.intents

    @property
    def intents(self) -> dict[OperationKind, Intent]:
        """Return the answers that are steps to take."""
        answers = {kind: getattr(self, kind.value) for kind in OperationKind}
        return {kind: answer for kind, answer in answers.items() if isinstance(answer, Intent)}


def refusal(config: TopicConfig) -> Why | None:
    """Return why a topic cannot be tiered at all; None if it can."""
    if "compact" in config.cleanup_policy:
        policy = ",".join(sorted(config.cleanup_policy))
        return Why(Reason.REFUSED_COMPACTED, f"compacted topic: cleanup.policy={policy}")
    if config.remote_storage_enable:
        return Why(Reason.REFUSED_KAFKA_TIERED, "remote.storage.enable=true: Kafka tiers it itself")
    return None


def internal(name: str) -> Why:
    """Return why one of Kafka's own topics, or the tier-state topic, is refused."""
    return Why(Reason.REFUSED_INTERNAL, f"internal topic: {name} is never tiered")


def excluded(name: str) -> Why:
    """Return why a topic that the settings no longer choose is no longer copied."""
    return Why(Reason.EXCLUDED, f"excluded: tiering.include and tiering.exclude do not choose {name}")


def standing_order(view: PartitionView) -> Why | None:
    """Return the newest pause, resume or disable as a reason; None if copying and trimming may continue."""
    newest = standing(view)
    if newest is None:
        return None
    kind = Reason.PAUSED if newest.kind is OrderKind.PAUSE else Reason.DISABLED
    text = f"{newest.kind.value} ordered by {newest.issued_by} at {moment(newest.at)}: `tierstate resume` takes it back"
    return Why(kind, text)


def paused(view: PartitionView) -> Why | None:
    """Return the reason of a pause, which stops everything; else None. A disabled partition still expires."""
    order = standing(view)
    return standing_order(view) if order is not None and order.kind is OrderKind.PAUSE else None


def decide(
    view: PartitionView,
    seen: Observed,
    policy: Policy,
    now: TimestampMs,
    memory: Memory | None = None,
    barred: Why | None = None,
) -> Decision:
    """Decide each kind of step separately. No step deletes anything while there is a doubt.

    ``barred``: why the topic is not tiered, or is no longer tiered. Its remote data still expires and is swept, and
    facts are erased. While the topic is refused, retention deletes nothing: Kafka's settings then have another meaning.
    """
    memory = memory or Memory()
    no_copy = barred or standing_order(view) or (why_degraded(view) if view.degraded else None) or seen.prefix.copy
    unsafe = None
    if seen.drift is not None:
        unsafe = Why(Reason.TIER_STATE_UNSAFE, f"the tier-state topic is not safe any more: {seen.drift}")
    copy = no_copy if no_copy is not None else _copy(view, seen, policy, now, memory)
    doubt = memory.clock_doubt
    if memory.clocks is not None:
        now = memory.clocks.for_deletion if doubt is None else NO_DELETION
    unsafe = unsafe or memory.lost
    kept_local = no_copy or unsafe or seen.prefix.trim or doubt or why_missing(still_missing(view, memory.missing))
    trim = _trim(view, seen, policy, now, memory, kept_local)
    no_deletion = unsafe or paused(view) or seen.prefix.delete
    if no_deletion is not None:
        return Decision(copy, trim, no_deletion, no_deletion.text, no_deletion.text)
    return Decision(
        copy,
        trim,
        _refused_too(refusal(seen.config), _timely(doubt, _expire(view, seen, policy, now, memory))),
        _sweep(view, seen, policy, memory) if doubt is None else doubt.text,
        _erase(view, seen, now, memory),
    )


def _copy(view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, memory: Memory) -> CopyCandidate | Why:
    answer = next_candidate(view, seen, now, policy.copy_lag_ms, memory.pinned_s)
    if isinstance(answer, CopyCandidate) and memory.too_old and memory.too_old[0] == answer.base_offset:
        return memory.too_old[1]
    return answer


def retention_of(config: TopicConfig) -> TopicRetention:
    """Return the retention of the topic. While the topic is refused, retention keeps everything."""
    return config.retention if refusal(config) is None else KEEPS_ALL


def _trim(
    view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, memory: Memory, stopped: Why | None
) -> TrimBefore | NoTrim:
    if not policy.trims:
        return NoTrim(Why(Reason.TRIM_DISABLED, _ARCHIVE))
    if stopped is not None:
        return NoTrim(stopped)
    rules = TrimPolicy(policy.trim_delay_ms, policy.allow_unclean, seen.config.unclean_leader_election_enable)
    return trim_before(view, seen, retention_of(seen.config), rules, now, memory.pinned_s)


def _expire(view: PartitionView, seen: Observed, policy: Policy, now: TimestampMs, memory: Memory) -> Expiry:
    """Return the next step: first for the log start, then for the segments below it, oldest first.

    If no step is possible, return why condemned objects wait. If none wait, return why the log start does not move. A
    refused topic's log is not cut on the broker: Kafka refuses to cut a compacted one, and tiers the others itself. An
    order then reaches the remote tier only.
    """
    retention = retention_of(seen.config)
    advance = next_log_start(view, seen.bounds, seen.segments, retention, now, memory.gone)
    if isinstance(advance, AdvanceLogStart):
        return advance
    removal = next_removal(view, now, policy.expire_grace_ms, memory.put_off, memory.archived_to)
    later = (
        next_cut(view, seen.bounds) if refusal(seen.config) is None else None,
        next_delete(view, retention, now),
        next_removal(view, now, policy.expire_grace_ms, memory.failed, memory.archived_to),
        removal,
    )
    step = next((each for each in later if each is not None and isinstance(each, Intent)), None)
    if step is not None or not isinstance(removal, Why):
        return step or removal
    waits = removal.kind is not Reason.RETENTION_KEEPS and advance.kind not in ORDERED
    return removal if waits else advance


def _timely(doubt: Why | None, expiry: Expiry) -> Expiry:
    """Return the expiry, or the doubt about the clocks if the step depends on a time. The steps of an order do not."""
    if doubt is None or isinstance(expiry, CutLocal) or (isinstance(expiry, AdvanceLogStart) and is_ordered(expiry)):
        return expiry
    return doubt


def _refused_too(refused: Why | None, expiry: Expiry) -> Expiry:
    """Return the expiry, with the refusal as its reason if retention deletes nothing because of it."""
    if refused is None or not isinstance(expiry, Why) or expiry.kind not in RETENTION_SAYS:
        return expiry
    return refused


def _sweep(view: PartitionView, seen: Observed, policy: Policy, memory: Memory) -> StartDelete | SweepOrphans | str:
    failed = failed_attempt(view, memory.term, seen.bounds)
    if failed is not None:
        return failed
    abandoned = next_sweep(view, seen.bounds, memory.abandoned, memory.monotonic, policy.sweep_grace_s)
    return abandoned if isinstance(abandoned, StartDelete) else next_orphans(view, memory.orphans) or abandoned


def _erase(view: PartitionView, seen: Observed, now: TimestampMs, memory: Memory) -> Erase | str:
    if memory.term is None:
        return "no term is held now: the next copy, trim or expiry begins one, and erasing follows"
    return next_erasure(view, memory.term, seen.bounds.local_start, memory.archived_to, now)
