"""One partition's worker: observe, decide, begin a term if one is due, run one operation, and repeat.

The worker holds the partition's term. One thread at a time runs the worker. Kinds of operations take turns. Each kind
has its own backoff (`schedule.py`), so that a failing trim delays no copy. For the same reason, a store that accepts no
objects delays no erasing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import assert_never

from ..rules.candidates import CopyCandidate
from ..rules.decide import Decision, Intent, Memory, OperationKind, Policy, decide, refusal
from ..rules.erase import Erase
from ..rules.expire import AdvanceLogStart, LastSeen, RemoveObjects, StartDelete
from ..rules.lineages import term_due
from ..rules.observed import Observed
from ..rules.orders import CutLocal
from ..rules.reasons import Reason, Why, why_failed
from ..rules.sweep import SweepOrphans, still_abandoned
from ..rules.trim import NoTrim, TrimBefore
from ..runtime.listener import (
    CopyFailed,
    GapFound,
    Listener,
    OperationFailed,
    PartitionRefused,
    TermEnded,
    TermStarted,
    TrimFailed,
    TrimRefused,
)
from ..runtime.operation import Operation, run
from ..state.errors import Fenced, NotTiered, TierstateError
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, Position
from ..state.partition_view import PartitionView
from ..state.segment import SegmentState
from .copier import CopyTools, copy_segment
from .expirer import NO_QUARANTINE, advance_log_start, delete_records_order, erase, remove_objects, start_delete
from .integrity import report_second_values
from .lost_facts import LostFactsWatch
from .observe import Observer
from .schedule import Backoff
from .status import PartitionStatus, StableOffsetPin, StatusBoard, failed, refused, reported, with_local_log
from .sweeper import OrphanSweeps
from .term import TermContext, TermSession, begin_term
from .trimmer import trim_local

ArchivedTo = Callable[[int], Position | None]
"""Returns the position below which a tier-state partition is archived; None if no archive is kept."""
FRESH_S = 5.0
OTHERS_EVERY_S = 10.0
"""For how many seconds a backlog of copies may delay trims, expiry, sweeping and erasing."""
LOCAL_LOG_EVERY_S = 30.0
"""The greatest age in seconds of a status's data about the broker's log, while an operation or a backoff lasts."""


@dataclass(frozen=True, slots=True)
class WorkerTools:
    """The tools that every partition's worker of this agent uses."""

    context: TermContext
    observe: Observer
    copies: CopyTools
    policy: Policy
    board: StatusBoard
    listener: Listener
    archived_to: ArchivedTo = lambda tier_partition: None


class PartitionWorker:
    """The work on one partition. Call `advance` until it returns False, and again when the next look is due."""

    def __init__(
        self,
        tools: WorkerTools,
        partition: TopicIdPartition,
        name: str,
        orphans: OrphanSweeps | None = None,
        lost: LostFactsWatch | None = None,
    ) -> None:
        context = tools.context
        self._context, self.partition, self.name = context, partition, name
        self._observe, self._copies, self._policy = tools.observe, tools.copies, tools.policy
        self._board, self._listener, self._archived_to = tools.board, tools.listener, tools.archived_to
        self._orphans, self._lost = orphans, lost
        self._session: TermSession | None = None
        self.barred: Why | None = None
        """Why the settings or the topic's name exclude the partition; None if they do not. The agent sets this."""
        self._pin = StableOffsetPin(context, partition, name)
        self._gone = LastSeen()
        self._too_old: tuple[Offset, Why] | None = None
        self._removal_error: str | None = None
        self._gaps_reported_to = Offset(0)  # each lost offset is reported once
        self._reading_tiers = False
        self._beginning_for: OperationKind | None = None
        """The kind of operation that needs a term. If the term cannot begin, only the reason of this kind changes."""
        self._returned: deque[type[TierstateError]] = deque()
        self._general = Backoff(context.clock)
        self._by_kind = {kind: Backoff(context.clock) for kind in OperationKind}
        self._last, self._last_other = OperationKind.ERASE, context.clock.monotonic()
        self._abandoned: dict[RemoteSegmentId, float] = {}
        self._put_off: dict[RemoteSegmentId, Backoff] = {}
        self.status = PartitionStatus(name, partition.partition, partition.topic_id, leads=False)
        """The status as of the last look."""
        self._publishing = threading.Lock()
        self._looked_at = context.clock.monotonic()

    @property
    def failures(self) -> int:
        """Return the highest number of failures in a row of any backoff; 0 if nothing fails."""
        return max(each.count for each in self._every_backoff())

    def _every_backoff(self) -> tuple[Backoff, ...]:
        return (self._general, *self._by_kind.values(), *self._put_off.values())

    def returned(self, kinds: Collection[type[TierstateError]]) -> None:
        """End, at the next look, each backoff whose last error is one of these kinds. Thread-safe."""
        self._returned.extend(kinds)

    @property
    def behind(self) -> int:
        """Return the number of rolled segments that are not copied, as of the last look."""
        return self.status.copy_lag_segments or 0

    @property
    def last_error(self) -> str | None:
        return self.status.last_error

    def advance(self) -> bool:
        """Take at most one operation. Return True when there may be more to do at once.

        Never raises a tierstate error: a failure is shown in the status, reported to the listener, and retried later.
        """
        return run(self.steps())

    def steps(self) -> Operation[bool]:
        """Do the work of `advance`. Yield the name of each irreversible step before the step."""
        while self._returned:
            kind = self._returned.popleft()
            for backoff in self._every_backoff():
                backoff.returned(kind)
        if self._general.waiting:
            self.look_at_local_log()
            return False
        try:
            return (yield from self._steps())
        except TierstateError as error:
            self._general.add(error)
            self._failed(error, self._beginning_for)
            return False
        finally:
            self._beginning_for, self._reading_tiers = None, False

    def _steps(self) -> Operation[bool]:
        if self.barred is not None and self.barred.kind is Reason.REFUSED_INTERNAL:
            self._refuse(self.barred)
            return False
        self._looked_at = self._context.clock.monotonic()
        observed = self._observe(self.partition, self.name)
        refused_now = refusal(observed.config)
        if refused_now is not None:
            self._refuse(refused_now)  # shown at once, whether or not the view is available
        self._reading_tiers = True
        view = self._session.view() if self._session else self._context.fresh_view(self.partition, FRESH_S)
        self._reading_tiers = False
        if (yield from report_second_values(self._context, self.partition, self._listener, self.name)):
            return True
        self._look_for_orphans(view)
        now = self._context.time.now_ms()
        memory = self._memory(view, observed)
        decision = decide(view, observed, self._policy, now, memory, refused_now or self.barred)
        if self._session is not None:  # without a term, attempts to begin one become less frequent
            self._general.clear()
        for idle in OperationKind:
            if idle not in decision.intents:
                self._by_kind[idle].clear()
        self._show(view, observed, decision, memory.lost)
        kind = self._turn(decision)
        due = self._due(view, observed, tiered=refused_now is None and self.barred is None) or self._asks_time(memory)
        if due is not None:
            self._end_term(due)
        if kind is None and due is None:
            self._general.clear()
            if self._pin.learn(self.status):
                self._publish(self._pin.named(self.status))
            return False
        if self._session is None:
            self._beginning_for = kind
            self._session = yield from begin_term(self._context, self.partition, self.name)
            self._general.clear()
            self._listener(TermStarted(self.partition, self.name, str(self._session.term)))
        elif kind is not None:
            return (yield from self._take(self._session, kind, decision.intents[kind]))
        return True

    def look_at_local_log(self) -> bool:
        """Update the status's data about the broker's log, while an operation or a backoff delays complete looks.

        Thread-safe. Does nothing if the last look or update is newer than `LOCAL_LOG_EVERY_S`. Queries the broker and
        the view, never the store. Returns False if a query failed; the next complete look reports the error.
        """
        now = self._context.clock.monotonic()
        if now - self._looked_at < LOCAL_LOG_EVERY_S or not self.status.leads or self.status.refused is not None:
            return True
        self._looked_at = now
        try:
            observed = self._observe.local_log(self.partition, self.name)
            view = self._context.view.partition(self.partition)
        except TierstateError:
            return False
        with self._publishing:
            self._put(with_local_log(self.status, view, observed, self._context.time.now_ms()))
        return True

    def _memory(self, view: PartitionView, seen: Observed) -> Memory:
        now = self._context.clock.monotonic()
        self._abandoned = still_abandoned(view, self._abandoned, now)
        condemned = {each.segment_id for each in view.unsettled if each.state is SegmentState.DELETE_SEGMENT_STARTED}
        self._put_off = {segment_id: each for segment_id, each in self._put_off.items() if segment_id in condemned}
        return Memory(
            self._session.term if self._session else None,
            self._abandoned,
            [segment_id for segment_id, each in self._put_off.items() if each.waiting],
            self._archived_to(self._context.view.tier_partition(self.partition)),
            now,
            tuple(self._put_off),
            self._orphans.ripe if self._orphans else (),
            self._pin.pinned_s(seen.bounds),
            self._too_old,
            self._gone.look(seen.segments, seen.bounds, seen.epochs.last_epoch),
            self._orphans.missing if self._orphans else (),
            self._context.time.clocks(),
            self._lost.why(view, seen.bounds.local_start) if self._lost else None,
        )

    def _look_for_orphans(self, view: PartitionView) -> None:
        if self._orphans is not None and self._orphans.look_if_due(view) and self._orphans.last is not None:
            last = self._orphans.last
            counts = {"orphan_objects": last.objects, "orphan_bytes": last.bytes, "missing_objects": last.missing}
            self._publish(self.status.saying(**counts))

    def _turn(self, decision: Decision) -> OperationKind | None:
        """Return the kind to run next; None if no kind can run. Copies first, every `OTHERS_EVERY_S` another kind."""
        able = [kind for kind in decision.intents if not self._by_kind[kind].waiting]
        others = [kind for kind in able if kind is not OperationKind.COPY]
        recently = self._context.clock.monotonic() - self._last_other < OTHERS_EVERY_S
        if OperationKind.COPY in able and (recently or not others):
            return OperationKind.COPY
        order = list(OperationKind)
        following = [kind for kind in others if order.index(kind) > order.index(self._last)]
        return next(iter(following or others), None)

    def _take(self, session: TermSession, kind: OperationKind, intent: Intent) -> Operation[bool]:
        if kind is not OperationKind.COPY:
            self._last, self._last_other = kind, self._context.clock.monotonic()
        try:
            yield from self._operation(session, intent)
        except NotTiered as error:
            if not isinstance(intent, CopyCandidate):
                raise
            self._too_old = (intent.base_offset, Why(Reason.REFUSED_FORMAT, str(error)))
        except TierstateError as error:
            self._by_kind[kind].add(error)
            if isinstance(intent, RemoveObjects):
                self._put_off.setdefault(intent.segment.segment_id, Backoff(self._context.clock)).add(error)
                self._removal_error = str(error)
            self._tell_failure(kind, intent, error)
            self._failed(error, kind)
            return False
        self._by_kind[kind].clear()
        if isinstance(intent, RemoveObjects):
            self._put_off.pop(intent.segment.segment_id, None)
        return True

    def _operation(self, session: TermSession, intent: Intent) -> Operation[object]:
        """Return the operation that carries out the intent, not yet begun."""
        tools, listener, orphans = self._copies, self._copies.listener, self._orphans
        match intent:
            case CopyCandidate():
                return copy_segment(session, intent, tools)
            case TrimBefore(offset=offset):
                return trim_local(session, tools.proof, offset, listener, self._observe.groups_after)
            case AdvanceLogStart(log_start=log_start, reason=why):
                return advance_log_start(session, log_start, why, listener)
            case CutLocal(before=before):
                return delete_records_order(session, before, listener)
            case StartDelete(segment=segment, reason=reason):
                return start_delete(session, segment, reason, listener)
            case RemoveObjects(segment=segment):
                aside = orphans.quarantine if orphans else NO_QUARANTINE
                return remove_objects(session, tools.store, segment, self._policy.expire_grace_ms, listener, aside)
            case SweepOrphans():
                assert orphans is not None
                return orphans.sweep(session)
            case Erase():
                return erase(session, intent, listener)
            case _:
                assert_never(intent)

    def _tell_failure(self, kind: OperationKind, intent: Intent, error: TierstateError) -> None:
        failures, where = self._by_kind[kind].count, (self.partition, self.name)
        if isinstance(intent, CopyCandidate):
            self._listener(CopyFailed(*where, intent.offsets, str(error), failures))
        elif kind is OperationKind.TRIM:
            self._listener(TrimFailed(*where, str(error), failures))
        else:
            self._listener(OperationFailed(*where, kind.value, str(error)))

    def _due(self, view: PartitionView, seen: Observed, *, tiered: bool) -> str | None:
        """Return why a new term must begin. None if none must, or if an untiered partition never had a term."""
        if view.term is None and not tiered:
            return None
        context = self._context
        return term_due(view, seen, context.log.broker_of(self.partition), context.management_address)

    def _asks_time(self, memory: Memory) -> str | None:
        """Return why a term must begin only to learn the brokers' time from its first append; None if not needed."""
        doubt, number = memory.clock_doubt, self._context.view.tier_partition(self.partition)
        return doubt.text if doubt is not None and self._context.time.may_ask_again(number) else None

    def rest(self) -> None:
        """End the term and stop all work, because this broker does not lead."""
        self._end_term("this broker no longer leads")
        self._clear_failures()
        if self._orphans is not None:
            self._orphans.rest()
        if self._lost is not None:
            self._lost.rest()
        self._publish(PartitionStatus(self.name, self.partition.partition, self.partition.topic_id, leads=False))

    def _clear_failures(self) -> None:
        for backoff in (self._general, *self._by_kind.values()):
            backoff.clear()
        self._put_off.clear()

    def _failed(self, error: TierstateError, kind: OperationKind | None = None) -> None:
        """Show a failure in the status. End the term if it was fenced or has ended; else retries use the same term."""
        if self._session is not None and (isinstance(error, Fenced) or self._session.ended):
            self._end_term(self._session.ended or str(error))
        times = max(self._general.count, self._by_kind[kind].count if kind else 0)
        self._publish(
            replace(
                failed(self.status, why_failed(error, times, reading_tiers=self._reading_tiers), kind),
                term=str(self._session.term) if self._session else None,
                last_error=str(error),
                consecutive_failures=self.failures,
            )
        )

    def _end_term(self, reason: str) -> None:
        """End the term, if there is one. A new term begins at the next look that needs it."""
        if self._session is not None:
            self._session.end(reason)
            self._listener(TermEnded(self.partition, self.name, str(self._session.term), reason))
            self._session = None

    def _refuse(self, why: Why) -> None:
        if self.status.refused_reason != why.kind:
            self._listener(PartitionRefused(self.partition, self.name, why.text))
            self._clear_failures()
        self._publish(refused(self.status, why))

    def _show(self, view: PartitionView, seen: Observed, decision: Decision, lost: Why | None) -> None:
        failing = {kind for kind, each in self._by_kind.items() if each.count}
        before, now = self.status, self._context.time.now_ms()
        status = reported(before, view, seen, decision, failing, now).saying(facts_lost=lost.text if lost else None)
        if isinstance(decision.trim, NoTrim) and status.not_trimmed_reason != before.not_trimmed_reason:
            self._listener(TrimRefused(self.partition, self.name, decision.trim.why.text))
        if status.refused_reason is not None and status.refused_reason != before.refused_reason:
            self._listener(PartitionRefused(self.partition, self.name, status.refused or ""))
        # offsets that retention passes now are no gap, and lost facts or another lineage may explain the others
        if lost is None and not view.lineage_unknown and not isinstance(decision.expire, AdvanceLogStart):
            start = None if view.log_start is None else max(view.log_start, self._gaps_reported_to)
            for gap in view.gaps_between(start, seen.bounds.local_start):
                self._listener(GapFound(self.partition, self.name, gap))
            self._gaps_reported_to = seen.bounds.local_start
        if status.not_expired_reason is Reason.REMOVAL_FAILED and self._removal_error is not None:
            status = replace(status, not_expired=f"{status.not_expired}: {self._removal_error}")
        self._publish(
            self._pin.named(status).saying(
                term=str(self._session.term) if self._session else None,
                lso_pinned_s=self._pin.pinned_s(seen.bounds),
                consecutive_failures=self.failures,
                last_error=self.status.last_error if self.failures else None,
            )
        )

    def _publish(self, status: PartitionStatus) -> None:
        with self._publishing:
            self._put(status)

    def _put(self, status: PartitionStatus) -> None:
        self.status = status
        self._board.put(self.partition, status)
