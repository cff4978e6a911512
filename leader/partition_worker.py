"""One partition's worker: observe, decide, begin a term when there is something to do, take one act, again.

It holds the partition's reign and its setbacks; one thread at a time runs it. Back-off: after the third setback in a
row exponential, 5 s to 5 min. A trim that fails holds up no copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..runtime.listener import CopyFailed, Listener, PartitionRefused, TermEnded, TermStarted, TrimRefused
from ..state.errors import Fenced, TierstateError
from ..state.ids import TopicIdPartition
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment
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
FRESH_S = 5.0


def backoff(setbacks: int) -> float:
    """Seconds to wait after so many setbacks in a row."""
    return 1.0 if setbacks <= 3 else min(MAX_BACKOFF_S, 5.0 * 2.0 ** min(setbacks - 4, 10))


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
        self._setbacks = self._trim_setbacks = 0
        self._not_before = self._no_trim_before = 0.0
        self._status = PartitionStatus(name, partition.partition, partition.topic_id, leads=False)

    @property
    def setbacks(self) -> int:
        """How often in a row something failed; 0: all is well."""
        return max(self._setbacks, self._trim_setbacks)

    @property
    def last_error(self) -> str | None:
        return self._status.last_error

    def advance(self) -> bool:
        """Take at most one act; True when there may be more to do at once.

        Never raises a tierstate error: what failed is in the status, told to the listener, and retried later.
        """
        if self._seat.clock.monotonic() < self._not_before:
            return False
        try:
            return self._advance()
        except TierstateError as error:
            self._setbacks += 1
            self._not_before = self._seat.clock.monotonic() + backoff(self._setbacks)
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
        if isinstance(decision.copy, NothingToCopy):
            self._setbacks = 0
        if isinstance(decision.trim, NoTrim):
            self._trim_setbacks = 0
        self._show(view, seen, decision)
        copying, trimming = isinstance(decision.copy, CopyCandidate), isinstance(decision.trim, TrimBefore)
        trimming = trimming and self._seat.clock.monotonic() >= self._no_trim_before
        if not (copying or trimming or self._moved_away(view)):
            return False
        if self._reign is None:
            self._reign = run(begin_term(self._seat, self.partition, self.name))
            self._listener(TermStarted(self.partition, self.name, str(self._reign.term)))
        elif isinstance(decision.copy, CopyCandidate):
            self._copy(self._reign, decision.copy)
        elif isinstance(decision.trim, TrimBefore):
            return self._trim(self._reign, decision.trim)
        return True

    def _copy(self, reign: Reign, candidate: CopyCandidate) -> None:
        try:
            run(copy_segment(reign, candidate, self._tools))
        except TierstateError as error:
            event = CopyFailed(self.partition, self.name, candidate.offsets, str(error), self._setbacks + 1)
            self._listener(event)
            raise
        self._setbacks = 0

    def _trim(self, reign: Reign, trim: TrimBefore) -> bool:
        try:
            run(trim_local(reign, self._tools.store, trim.offset, self._listener))
        except TierstateError as error:
            self._trim_setbacks += 1
            self._no_trim_before = self._seat.clock.monotonic() + backoff(self._trim_setbacks)
            self._listener(TrimRefused(self.partition, self.name, str(error)))
            self._failed(error)
            self._publish(replace(self._status, not_trimmed=str(error)))
            return False
        self._trim_setbacks = 0
        return True

    def _moved_away(self, view: PartitionView) -> bool:
        """The term in force names an address at which this agent no longer answers: people would call it silent."""
        leader, seat = view.leader, self._seat
        return (
            self._reign is None
            and leader is not None
            and leader.broker_id == seat.broker_id
            and leader.management_address != seat.management_address
        )

    def rest(self) -> None:
        """This broker does not lead: nothing is done, and a term that was is over."""
        self._end_term("this broker no longer leads")
        self._setbacks = self._trim_setbacks = 0
        self._publish(PartitionStatus(self.name, self.partition.partition, self.partition.topic_id, leads=False))

    def _fresh_view(self) -> PartitionView:
        self._seat.view.require_fresh(self._seat.view.tier_partition(self.partition), FRESH_S)
        return self._seat.view.partition(self.partition)

    def _failed(self, error: TierstateError) -> None:
        """What is fenced ends the term, and so does whatever ended it already; all else is tried again within it."""
        if self._reign is not None and (isinstance(error, Fenced) or self._reign.ended):
            self._end_term(self._reign.ended or str(error))
        self._publish(
            replace(
                self._status,
                term=str(self._reign.term) if self._reign else None,
                last_error=str(error),
                not_copied=str(error) if self._setbacks else self._status.not_copied,
                consecutive_failures=self.setbacks,
            )
        )

    def _end_term(self, reason: str) -> None:
        """A new one begins when there is something to do."""
        if self._reign is not None:
            self._reign.end(reason)
            self._listener(TermEnded(self.partition, self.name, str(self._reign.term), reason))
            self._reign = None

    def _refuse(self, reason: str) -> None:
        if self._status.refused != reason:
            self._listener(PartitionRefused(self.partition, self.name, reason))
        self._setbacks = self._trim_setbacks = 0
        self._publish(replace(self._status, leads=True, refused=reason, not_copied=reason, not_trimmed=reason))

    def _show(self, view: PartitionView, seen: Observed, decision: Decision) -> None:
        copied = copied_offset(view, seen.bounds)
        behind = [segment for segment in seen.segments[:-1] if segment.next_base > copied + 1]
        no_trim = decision.trim.reason if isinstance(decision.trim, NoTrim) else None
        if no_trim is not None and no_trim != self._status.not_trimmed:
            self._listener(TrimRefused(self.partition, self.name, no_trim))
        if isinstance(decision.copy, CopyCandidate):
            not_copied = self._status.not_copied if self._setbacks else None
        else:
            not_copied = decision.copy.reason
        self._publish(
            replace(
                self._status,
                leads=True,
                refused=None,
                term=str(self._reign.term) if self._reign else None,
                copied_to=copied,
                local_start=seen.bounds.local_start,
                last_stable_offset=seen.bounds.last_stable_offset,
                not_copied=not_copied,
                not_trimmed=no_trim or (self._status.not_trimmed if self._trim_setbacks else None),
                held_by=decision.trim.held_by,
                copy_lag_segments=len(behind),
                copy_lag_bytes=sum(segment.size_bytes for segment in behind),
                uncopied_expires_in_s=_expires_in(behind, seen.config.retention_ms, self._seat.clock.now_ms()),
                consecutive_failures=self.setbacks,
                last_error=self._status.last_error if self.setbacks else None,
            )
        )

    def _publish(self, status: PartitionStatus) -> None:
        self._status = status
        self._board.put(self.partition, status)


def _expires_in(behind: list[LocalSegment], retention_ms: int, now: TimestampMs) -> float | None:
    """Seconds until Kafka's own retention by time takes something that is not copied."""
    if not behind or retention_ms < 0:
        return None
    return max(0.0, (min(segment.max_timestamp for segment in behind) + retention_ms - now) / 1000)
