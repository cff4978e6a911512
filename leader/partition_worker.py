"""One partition's worker: observe, decide, begin a term when there is something to do, take one act, again.

It holds the partition's reign and its failures; one thread at a time runs it. Back-off: after three failed copies in a
row exponential, 5 s to 5 min; a lost term begins again after 1 s to 5 min.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..runtime.listener import CopyFailed, Listener, PartitionRefused, TermEnded, TermStarted, TrimRefused
from ..state.errors import Fenced, TierstateError
from ..state.ids import TopicIdPartition
from ..state.meaning import PartitionView
from .act import run
from .candidates import CopyCandidate, NothingToCopy, copied_offset
from .copier import CopyTools, copy_segment
from .decide import Decision, Observed, Policy, decide, refusal
from .status import PartitionStatus, StatusBoard
from .term import Reign, Seat, begin_term
from .trim_rule import NoTrim, TrimBefore
from .trimmer import trim_local

Observe = Callable[[TopicIdPartition, str], Observed]
MAX_BACKOFF_S = 300.0


class PartitionWorker:
    """`advance` until it answers False; then again at the next reconcile."""

    def __init__(
        self,
        seat: Seat,
        partition: TopicIdPartition,
        name: str,
        observe: Observe,
        tools: CopyTools,
        policy: Policy,
        board: StatusBoard,
        listener: Listener,
    ) -> None:
        self._seat, self.partition, self.name = seat, partition, name
        self._observe, self._tools, self._policy = observe, tools, policy
        self._board, self._listener = board, listener
        self._reign: Reign | None = None
        self._failures = 0
        self._lost_terms = 0
        self._not_before = 0.0
        self._status = PartitionStatus(name, partition.partition, partition.topic_id, leads=False)

    def advance(self) -> bool:
        """Take at most one act; True when there may be more to do at once.

        Never raises a tierstate error: what failed is in the status, told to the listener, and retried later.
        """
        if self._seat.clock.monotonic() < self._not_before:
            return False
        try:
            return self._advance()
        except Fenced as error:
            self._lost(str(error))
        except TierstateError as error:
            self._failed(error)
        return False

    def _advance(self) -> bool:
        seen = self._observe(self.partition, self.name)
        refused = refusal(seen.config)
        if refused is not None:
            self._refuse(refused)
            return False
        view = self._reign.view() if self._reign else self._fresh_view()
        decision = decide(view, seen, self._policy, self._seat.clock.now_ms())
        self._show(view, seen, decision)
        if decision.idle:
            return False
        if self._reign is None:
            self._reign = run(begin_term(self._seat, self.partition, self.name))
            self._listener(TermStarted(self.partition, self.name, str(self._reign.term)))
            return True
        return self._act(self._reign, decision)

    def _act(self, reign: Reign, decision: Decision) -> bool:
        if isinstance(decision.copy, CopyCandidate):
            self._copy(reign, decision.copy)
        elif isinstance(decision.trim, TrimBefore):
            run(trim_local(reign, self._tools.store, decision.trim.offset, self._listener))
        if reign.ended:
            self._lost(reign.ended)
        self._lost_terms = 0
        return True

    def _copy(self, reign: Reign, candidate: CopyCandidate) -> None:
        try:
            run(copy_segment(reign, candidate, self._tools))
        except TierstateError as error:
            self._failures += 1
            event = CopyFailed(self.partition, self.name, candidate.offsets, str(error), self._failures)
            self._listener(event)
            raise
        self._failures = 0
        self._status = replace(self._status, consecutive_failures=0, last_error=None)

    def rest(self) -> None:
        """This broker does not lead: nothing is done, and a term that was is over."""
        if self._reign is not None:
            self._lost("this broker no longer leads")
        self._publish(replace(self._status, leads=False, term=None, not_copied=None, not_trimmed=None))

    def _fresh_view(self) -> PartitionView:
        self._seat.view.require_fresh(self._seat.view.tier_partition(self.partition), 5.0)
        return self._seat.view.partition(self.partition)

    def _lost(self, reason: str) -> None:
        """The term ended; a new one begins after a back-off, if there is still something to do."""
        if self._reign is not None:
            self._reign.end(reason)
            self._listener(TermEnded(self.partition, self.name, str(self._reign.term), reason))
            self._reign = None
        self._not_before = self._seat.clock.monotonic() + min(MAX_BACKOFF_S, 2.0**self._lost_terms)
        self._lost_terms += 1
        self._publish(replace(self._status, term=None, last_error=reason))

    def _failed(self, error: TierstateError) -> None:
        if self._reign is not None and self._reign.ended:
            self._lost(self._reign.ended)
        wait = 1.0 if self._failures <= 3 else min(MAX_BACKOFF_S, 5.0 * 2.0 ** (self._failures - 4))
        self._not_before = max(self._not_before, self._seat.clock.monotonic() + wait)
        failing = str(error) if self._failures else self._status.not_copied
        self._publish(
            replace(self._status, last_error=str(error), not_copied=failing, consecutive_failures=self._failures)
        )

    def _refuse(self, reason: str) -> None:
        if self._status.refused != reason:
            self._listener(PartitionRefused(self.partition, self.name, reason))
        self._publish(replace(self._status, leads=True, refused=reason, not_copied=reason, not_trimmed=reason))

    def _show(self, view: PartitionView, seen: Observed, decision: Decision) -> None:
        copied = copied_offset(view, seen.bounds)
        behind = [segment for segment in seen.segments[:-1] if segment.next_base > copied + 1]
        no_trim = decision.trim.reason if isinstance(decision.trim, NoTrim) else None
        failing = self._status.last_error if self._failures else None
        if no_trim is not None and no_trim != self._status.not_trimmed:
            self._listener(TrimRefused(self.partition, self.name, no_trim))
        self._publish(
            replace(
                self._status,
                leads=True,
                refused=None,
                term=str(self._reign.term) if self._reign else None,
                copied_to=copied,
                local_start=seen.bounds.local_start,
                last_stable_offset=seen.bounds.last_stable_offset,
                not_copied=decision.copy.reason if isinstance(decision.copy, NothingToCopy) else failing,
                not_trimmed=no_trim,
                held_by=tuple(sorted(seen.holds or ())),
                copy_lag_segments=len(behind),
                copy_lag_bytes=sum(segment.size_bytes for segment in behind),
            )
        )

    def _publish(self, status: PartitionStatus) -> None:
        self._status = status
        self._board.put(self.partition, status)
